"""CSV: rows as lines of messages (Kafka), and as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation, Types, schema_of
from penstock.common.types import Row
from penstock.connectors.files import CsvFormat
from penstock.connectors.files.write_formats import CsvWriteFormat
from penstock.errors import JobDefinitionError

_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}
_INTEGERS: Final = (BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT)


def _row_type(type_info: TypeInformation, where: str) -> RowTypeInfo:
    if not isinstance(type_info, RowTypeInfo):
        raise JobDefinitionError(f"{where} takes a row type such as Types.ROW_NAMED([...], [...]), not {type_info!r}")
    return type_info


def _reader_of(type_info: TypeInformation, separator: str) -> Callable[[str], Any]:
    """From the text of a field to its value; ValueError if it is none."""
    if isinstance(type_info, BasicTypeInfo):
        match type_info._basic_type:
            case BasicType.STRING | BasicType.CHAR:
                return str
            case BasicType.BOOLEAN:
                return lambda text: _TRUTH[text.strip().lower()]
            case BasicType.FLOAT | BasicType.DOUBLE:
                return float
            case kind if kind in _INTEGERS:
                return int
    element = getattr(type_info, "_element_type", None)
    if isinstance(element, TypeInformation):
        inner = _reader_of(element, separator)
        return lambda text: [inner(part) for part in text.split(separator)] if text else []
    raise JobDefinitionError(f"CSV has no way to write a {type_info}: use texts, numbers, booleans and arrays of them")


class _Format:
    """What the builders set: characters, and what stands for None."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = _row_type(type_info, type(self).__qualname__)
        self._delimiter, self._elements, self._null = ",", ";", ""
        self._quote: str | None = '"'
        self._escape: str | None = None

    def _dialect(self) -> dict[str, Any]:
        return {
            "delimiter": self._delimiter,
            "quotechar": self._quote,
            "escapechar": self._escape,
            "quoting": csv.QUOTE_MINIMAL if self._quote is not None else csv.QUOTE_NONE,
        }


class CsvRowDeserializationSchema(DeserializationSchema):
    """Rows of a declared type from lines of CSV. Made by `CsvRowDeserializationSchema.Builder(type_info)`."""

    def __init__(self, settings: CsvRowDeserializationSchema.Builder) -> None:
        self._type_info, self._null = settings._type_info, settings._null
        self._dialect = settings._dialect()
        self._ignore_errors, self._comments = settings._ignore_errors, settings._comments
        self._elements = settings._elements

    class Builder(_Format):
        """Builds the schema."""

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._ignore_errors = self._comments = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """What stands between fields; a comma unless set."""
            self._delimiter = delimiter
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """What stands between the elements of an array; a semicolon unless set."""
            self._elements = delimiter
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """True: lines that begin with # are no records."""
            self._comments = allow_comments
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """What stands around a field that holds a delimiter; a double quote unless set."""
            self._quote = c
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """What takes the next character its meaning; none unless set."""
            self._escape = c
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """The text of a field that is None; the empty text unless set, for all fields but texts."""
            self._null = null_literal
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """True: a field that is no value of its type is None, and a line that is no record is dropped."""
            self._ignore_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The schema."""
            for field in self._type_info.get_field_types():
                _reader_of(field, self._elements)
            return CsvRowDeserializationSchema(self)

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    def deserialize(self, message: bytes) -> Row | None:
        """The row of a line; None for what is dropped.

        Example:

            row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
            CsvRowDeserializationSchema.Builder(row).build().deserialize(b"ann,3")  # gives Row(name="ann", n=3)
        """
        text = message.decode("utf-8").rstrip("\r\n")
        if self._comments and text.startswith("#"):
            return None
        fields = next(csv.reader([text], **self._dialect), [])
        names, types = self._type_info.get_field_names(), self._type_info.get_field_types()
        if len(fields) != len(names):
            if self._ignore_errors:
                return None
            raise ValueError(f"the line {text!r} has {len(fields)} fields, its type {self._type_info} has {len(names)}")
        row = Row(*[self._value(name, kind, field) for name, kind, field in zip(names, types, fields, strict=True)])
        row.set_field_names(names)
        return row

    def _value(self, name: str, kind: TypeInformation, text: str) -> Any:
        is_text = kind == Types.STRING()
        if text == self._null and (self._null or not is_text):
            return None
        try:
            return _reader_of(kind, self._elements)(text)
        except (ValueError, KeyError):
            if self._ignore_errors:
                return None
            raise ValueError(f"field {name!r} is {text!r}, which is no {kind}") from None


class CsvRowSerializationSchema(SerializationSchema):
    """Lines of CSV from rows of a declared type. Made by `CsvRowSerializationSchema.Builder(type_info)`."""

    def __init__(self, settings: CsvRowSerializationSchema.Builder) -> None:
        self._type_info, self._null, self._elements = settings._type_info, settings._null, settings._elements
        self._dialect = {**settings._dialect(), "lineterminator": settings._line}

    class Builder(_Format):
        """Builds the schema."""

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._line = "\n"

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """What stands between fields; a comma unless set."""
            self._delimiter = c
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """What ends a line; a line feed unless set."""
            self._line = delimiter
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """What stands between the elements of an array; a semicolon unless set."""
            self._elements = delimiter
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Writes fields without quotes."""
            self._quote = None
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """What stands around a field that holds a delimiter; a double quote unless set."""
            self._quote = c
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """What takes the next character its meaning; none unless set."""
            self._escape = c
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """The text of None; the empty text unless set."""
            self._null = s
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The schema."""
            return CsvRowSerializationSchema(self)

    def serialize(self, element: Any) -> bytes:
        """The line of a row, with what ends it.

        Example:

            row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
            CsvRowSerializationSchema.Builder(row).build().serialize(Row(name="ann", n=3))
        """
        values = element.get_fields_by_names(self._type_info.get_field_names()) if isinstance(element, Row) else element
        out = io.StringIO()
        csv.writer(out, **self._dialect).writerow([self._text(value) for value in values])
        return out.getvalue().encode("utf-8")

    def _text(self, value: Any) -> str:
        if value is None:
            return self._null
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (list, tuple)):
            return self._elements.join(map(self._text, value))
        return str(value)


class CsvSchema:
    """The columns of CSV files. Made by `CsvSchema.builder()`."""

    def __init__(self, settings: CsvSchemaBuilder) -> None:
        self._columns, self._separator = dict(settings._columns), settings._separator
        self._header = settings._header or settings._skip_first

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Starts a schema without columns.

        Example:

            CsvSchema.builder().add_string_column("name").add_number_column("n").build()
        """
        return CsvSchemaBuilder()

    def size(self) -> int:
        """The number of columns.

        Example:

            CsvSchema.builder().add_string_column("name").build().size()  # gives 1
        """
        return len(self._columns)

    def __len__(self) -> int:
        return self.size()

    def __repr__(self) -> str:
        return f"CsvSchema({', '.join(f'{name}: {kind}' for name, kind in self._columns.items())})"

    def to_arrow(self) -> pa.Schema:
        """The schema of the columns as they are read and written.

        Example:

            CsvSchema.builder().add_string_column("name").build().to_arrow().names  # gives ["name"]
        """
        schema = schema_of(RowTypeInfo(list(self._columns.values()), list(self._columns)))
        assert schema is not None
        return schema


class CsvSchemaBuilder:
    """Adds columns in their order. A number is a LONG unless another type of `Types` is given."""

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._separator, self._header, self._skip_first = ",", False, False

    def _add(self, name: str, type_info: TypeInformation) -> CsvSchemaBuilder:
        if not isinstance(type_info, TypeInformation):
            raise JobDefinitionError(f"column {name!r}: takes a type such as Types.DOUBLE(), not {type_info!r}")
        self._columns[name] = type_info
        return self

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """A column of texts.

        Example:

            CsvSchema.builder().add_string_column("name").build()
        """
        return self._add(name, Types.STRING())

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """A column of booleans.

        Example:

            CsvSchema.builder().add_boolean_column("paid").build()
        """
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: TypeInformation | None = None) -> CsvSchemaBuilder:
        """A column of numbers, of LONG unless `number_type` is another type of `Types`.

        Example:

            CsvSchema.builder().add_number_column("n", Types.LONG()).build()
        """
        return self._add(name, Types.LONG() if number_type is None else number_type)

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """All columns of another schema.

        Example:

            first = CsvSchema.builder().add_string_column("name").build()
            CsvSchema.builder().add_columns_from(first).add_number_column("n").build().size()  # gives 2
        """
        self._columns.update(schema._columns)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Takes all columns away.

        Example:

            CsvSchema.builder().add_string_column("name").clear_columns().size()  # gives 0
        """
        self._columns.clear()
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """What stands between columns; a comma unless set.

        Example:

            CsvSchema.builder().add_string_column("name").set_column_separator(";").build()
        """
        self._separator = char
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """True: the first line has the names of the columns.

        Example:

            CsvSchema.builder().add_string_column("name").set_use_header().build()
        """
        self._header = use
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """True: the first line is no record.

        Example:

            CsvSchema.builder().add_string_column("name").set_skip_first_data_row().build()
        """
        self._skip_first = skip
        return self

    def size(self) -> int:
        """The number of columns so far.

        Example:

            CsvSchema.builder().add_string_column("name").size()  # gives 1
        """
        return len(self._columns)

    def __len__(self) -> int:
        return self.size()

    def build(self) -> CsvSchema:
        """The schema; one without columns is refused.

        Example:

            schema = CsvSchema.builder().add_string_column("name").build()
        """
        if not self._columns:
            raise JobDefinitionError("CsvSchema: add at least one column before build()")
        return CsvSchema(self)


class CsvReaderFormat:
    """Reads CSV files, for `FileSource.for_record_stream_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvFormat:
        """The format that reads files of this schema.

        Example:

            schema = CsvSchema.builder().add_string_column("name").build()
            CsvReaderFormat.for_schema(schema)
        """
        return CsvFormat(schema=schema.to_arrow(), header=schema._header, delimiter=schema._separator)


class CsvBulkWriters:
    """Writes CSV files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvWriteFormat:
        """The format that writes files of this schema.

        Example:

            schema = CsvSchema.builder().add_string_column("name").build()
            sink = FileSink.for_bulk_format("out", CsvBulkWriters.for_schema(schema)).build()
        """
        return CsvWriteFormat(schema.to_arrow(), header=schema._header, delimiter=schema._separator)
