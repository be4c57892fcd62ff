"""Types made of other types: lists, arrays, maps, rows and tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.common.atomic_types import BasicType, BasicTypeInfo, TypeInformation, check_type
from penstock.common.types import Row, RowKind, _create_row
from penstock.errors import PenstockError


class _ElementsTypeInfo(TypeInformation):
    """A sequence of elements of one type."""

    def __init__(self, element_type: TypeInformation) -> None:
        check_type(element_type, "the element type of a list or an array")
        self._element_type = element_type

    def to_arrow(self) -> pa.DataType | None:
        element = self._element_type.to_arrow()
        return None if element is None else pa.list_(element)

    def need_conversion(self) -> bool:
        return self._element_type.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return obj if obj is None else [self._element_type.to_internal_type(value) for value in obj]

    def from_internal_type(self, obj: Any) -> Any:
        return obj if obj is None else [self._element_type.from_internal_type(value) for value in obj]

    def _structure(self) -> tuple[Any, ...]:
        return (self._element_type,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self._element_type}>"


class ListTypeInfo(_ElementsTypeInfo):
    """The type of a list whose elements have one type."""

    @property
    def elem_type(self) -> TypeInformation:
        """The type of the elements."""
        return self._element_type


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """A list of numbers, booleans or characters without None; of BYTE: a `bytes`."""

    def to_arrow(self) -> pa.DataType | None:
        return pa.binary() if self._is_bytes() else super().to_arrow()

    def need_conversion(self) -> bool:
        return not self._is_bytes() and super().need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return obj if self._is_bytes() else super().to_internal_type(obj)

    def from_internal_type(self, obj: Any) -> Any:
        return obj if self._is_bytes() else super().from_internal_type(obj)

    def _is_bytes(self) -> bool:
        return self._element_type == BasicTypeInfo(BasicType.BYTE)


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """A list of basic values, None allowed."""


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """A list of values of any type."""


class MapTypeInfo(TypeInformation):
    """The type of a dict whose keys have one type and whose values have one."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        check_type(key_type_info, "the key type of a map")
        check_type(value_type_info, "the value type of a map")
        self._key_type_info = key_type_info
        self._value_type_info = value_type_info

    def to_arrow(self) -> pa.DataType | None:
        key, value = self._key_type_info.to_arrow(), self._value_type_info.to_arrow()
        return None if key is None or value is None else pa.map_(key, value)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        key_of, value_of = self._key_type_info.to_internal_type, self._value_type_info.to_internal_type
        return [(key_of(key), value_of(value)) for key, value in obj.items()]

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        key_of, value_of = self._key_type_info.from_internal_type, self._value_type_info.from_internal_type
        return {key_of(key): value_of(value) for key, value in obj}

    def _structure(self) -> tuple[Any, ...]:
        return (self._key_type_info, self._value_type_info)

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self._key_type_info}, {self._value_type_info}>"


class _FieldsTypeInfo(TypeInformation):
    """A fixed number of fields, each with its type; in Arrow a struct."""

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._field_types = list(field_types)
        for position, field_type in enumerate(self._field_types):
            check_type(field_type, f"the type of field {position} of a row or tuple")

    def get_field_types(self) -> list[TypeInformation]:
        """The types of the fields in their order."""
        return self._field_types

    def get_field_names(self) -> list[str]:
        """The names of the fields in their order; f0, f1 … where none were given."""
        return [f"f{index}" for index in range(len(self._field_types))]

    def to_arrow(self) -> pa.DataType | None:
        types = [field_type.to_arrow() for field_type in self._field_types]
        if any(arrow is None for arrow in types):
            return None
        return pa.struct(list(zip(self.get_field_names(), types, strict=True)))

    def need_conversion(self) -> bool:
        return True

    def _to_struct(self, values: Sequence[Any], record: Any) -> dict[str, Any]:
        if len(values) != len(self._field_types):
            raise PenstockError(
                f"A record has {len(values)} fields but its declared type {self} has {len(self._field_types)}: "
                f"{record!r}. Correct the type_info/output_type of the stream or the record."
            )
        fields = zip(self.get_field_names(), self._field_types, values, strict=True)
        return {name: field_type.to_internal_type(value) for name, field_type, value in fields}

    def _from_struct(self, struct: dict[str, Any]) -> list[Any]:
        return [t.from_internal_type(value) for t, value in zip(self._field_types, struct.values(), strict=True)]

    def _structure(self) -> tuple[Any, ...]:
        return tuple(self._field_types)


class RowTypeInfo(_FieldsTypeInfo):
    """A `Row`. Accepts rows, tuples, lists, dicts and objects with attributes; gives back rows with field names.

    As in Flink, names (f0, f1, … unless given) are not part of equality.
    """

    def __init__(self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None) -> None:
        super().__init__(field_types)
        self._field_names = None if field_names is None else list(field_names)
        if self._field_names is not None and len(self._field_names) != len(self._field_types):
            raise ValueError(f"A row type got {len(self._field_types)} types but the names {self._field_names}")
        if self._field_names is not None and len(set(self._field_names)) != len(self._field_names):
            raise ValueError(f"The field names of a row type must differ, but are {self._field_names}")

    def get_field_names(self) -> list[str]:
        return super().get_field_names() if self._field_names is None else self._field_names

    def get_field_index(self, field_name: str) -> int:
        """The position of a field, -1 when the type has no names of its own; a wrong name is a ValueError."""
        return -1 if self._field_names is None else self._field_names.index(field_name)

    def to_internal_type(self, obj: Any) -> Any:
        match obj:
            case None:
                return None
            case Row():
                if obj.get_row_kind() is not RowKind.INSERT:
                    raise PenstockError(
                        f"{obj!r} is a {obj.get_row_kind()} row, and a typed stream {self} holds only +I rows. "
                        "Leave the type out (or use Types.PICKLED_BYTE_ARRAY()) to send changelog rows."
                    )
                # Fields of a row are matched by name when it has names, whatever their order.
                return self._to_struct(obj.get_fields_by_names(self.get_field_names()), obj)
            case tuple() | list():
                return self._to_struct(obj, obj)
            case dict():
                return self._to_struct([obj.get(name) for name in self.get_field_names()], obj)
            case _ if hasattr(obj, "__dict__"):
                return self._to_struct([vars(obj).get(name) for name in self.get_field_names()], obj)
            case _:
                raise ValueError(f"{obj!r} is not a row: the declared type is {self}")

    def from_internal_type(self, obj: Any) -> Any:
        return None if obj is None else _create_row(self.get_field_names(), self._from_struct(obj))

    def __repr__(self) -> str:
        if self._field_names is None:
            return f"RowTypeInfo({', '.join(map(str, self._field_types))})"
        named = zip(self._field_names, self._field_types, strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {field_type}' for name, field_type in named)})"


class TupleTypeInfo(_FieldsTypeInfo):
    """A tuple; lists and rows are accepted too and come back as tuples."""

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        if not isinstance(obj, (tuple, list, Row)):
            raise ValueError(f"{obj!r} is not a tuple: the declared type is {self}")
        return self._to_struct(list(obj), obj)

    def from_internal_type(self, obj: Any) -> Any:
        return None if obj is None else tuple(self._from_struct(obj))

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"
