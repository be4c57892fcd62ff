"""PostgresSource: a bounded read of a table or query, in ranges of a key.

Readers cannot share one snapshot of the database, and a retried epoch comes later than the first try. So what makes a read
repeatable is the key: the highest one is fixed when the job starts, and each epoch reads ranges of keys below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.connectors.builder_arguments import positive, text
from penstock.connectors.postgres.client import (
    Database,
    DatabaseBuilder,
    KeepsConnection,
    PostgresError,
    PostgresSetupError,
    is_final,
)
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block, Rows
from penstock.records.convert import named_rows
from penstock.records.sizes import BLOCK_BYTES, about

_STATE_VERSION = 1
_DEFAULT_SPLITS = 4
_DEFAULT_CHUNK = 25_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read: `query` is a select, `key` one of its columns. Values of the key travel as text, which PostgreSQL reads
    back exactly."""

    database: Database
    query: str
    key: str

    @property
    def column(self) -> str:
        """The key column as SQL takes it."""
        return '"' + self.key.replace('"', '""') + '"'

    def execute(self, connection: Any, what: str, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Runs a statement in a transaction of its own and gives its rows; errors say what was read."""
        with self.database.attempt(f"{what} of ({_shortened(self.query)}) by {self.key}"):
            rows: list[Any] = connection.execute(statement.encode(), parameters).fetchall()
            connection.rollback()
        return rows


class PostgresEnumerator(KeepsConnection, SplitEnumerator):
    """State: the key's type, its highest value at the start, and the last value that was planned. Ranges go round robin to
    the splits."""

    def __init__(self, reading: Reading, splits: int, chunk: int) -> None:
        self._reading, self._splits, self._chunk = reading, splits, chunk
        self._type = ""
        self._until: str | None = None
        self._after: str | None = None
        self._started = self._planned = False

    def restore(self, state: Json) -> None:
        if state["version"] != _STATE_VERSION:
            raise PostgresError(
                f"PostgresSource: state of version {state['version']}, this Penstock reads {_STATE_VERSION}"
            )
        self._type, self._until, self._after = state["type"], state["until"], state["after"]
        self._started = self._planned = True

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        if self._planned and self._after == self._until:
            return SourcePlan(ranges=(), state=self._state(), finished=True, records=0)
        try:
            if self._connection is None:
                self._connection = self._reading.database.connect()
            if not self._started:
                self._start()
            rows = self._chunk if max_records is None else max(1, min(self._chunk, max_records // self._splits))
            ends = self._next_ends(rows)
        except PostgresError as error:
            self.close()
            if not self._started and is_final(error):  # a wrong password, query or column
                raise PostgresSetupError(str(error)) from error.__cause__
            raise
        except BaseException:
            self.close()
            raise
        finished = not ends or ends[-1][0] == self._until
        ranges, records, before = [], 0, 0
        for split in range(self._splits):
            end, number = ends[split] if split < len(ends) else (self._after, before)
            ranges.append(
                SplitRange(
                    split=f"{self._reading.key}-{split}",
                    ordinal=split,
                    start={"type": self._type, "after": self._after},
                    end={"upto": end},
                    last=finished,
                )
            )
            records, before, self._after = number, number, end
        self._planned = True
        if finished:
            self.close()
        return SourcePlan(ranges=tuple(ranges), state=self._state(), finished=finished, records=records)

    def _state(self) -> Json:
        return {"version": _STATE_VERSION, "type": self._type, "until": self._until, "after": self._after}

    def _start(self) -> None:
        reading = self._reading
        key, query = reading.column, reading.query
        ((missing,),) = reading.execute(
            self._connection, "looking for nulls", f"select count(*) from ({query}) q where {key} is null"
        )
        if missing:
            raise PostgresError(
                f"PostgresSource: {missing} rows of ({_shortened(reading.query)}) have no {reading.key} and would be in no range: "
                "filter them out in the query, or split by another column"
            )
        highest = reading.execute(
            self._connection,
            "finding the highest key",
            f"select q.{key}::text, pg_typeof(q.{key})::text from ({query}) q order by q.{key} desc limit 1",
        )
        if highest:
            ((self._until, self._type),) = highest
        self._started = True

    def _next_ends(self, rows: int) -> list[tuple[str, int]]:
        """The keys at which the next ranges end, each with the number of rows up to there."""
        if self._until is None or self._after == self._until:
            return []
        key, kind = self._reading.column, self._type
        above = "" if self._after is None else f"{key} > %s::{kind} and"
        bounds = (self._until,) if self._after is None else (self._after, self._until)
        keys = f"select {key} as k from ({self._reading.query}) q where {above} {key} <= %s::{kind} order by 1 limit %s"
        numbered = f"select k, row_number() over (order by k) as n, count(*) over () as total from ({keys}) a"
        found = self._reading.execute(
            self._connection,
            "dividing the rows",
            f"select k::text, n from ({numbered}) b where n %% {rows} = 0 or n = total order by n",
            (*bounds, rows * self._splits),
        )
        # Rows of one key are read together: a key that fills several chunks ends only one of them.
        return list({end: (end, number) for end, number in found}.values())


class PostgresReader(KeepsConnection, SplitReader):
    """Reads a range through a cursor of the server's, so that memory holds one block."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._fitting = 100  # rows in a block of bytes: until the first ones are there, a guess

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        after, upto = split.start["after"], split.end["upto"]
        if upto is None or after == upto:
            return
        key, kind = self._reading.column, split.start["type"]
        above = "" if after is None else f"{key} > %s::{kind} and"
        # Rows of the same key, if there are several, are put in order by their text.
        statement = (
            f"select * from ({self._reading.query}) q where {above} {key} <= %s::{kind} order by q.{key}, q::text"
        )
        what = f"reading {self._reading.key} from {after} to {upto} of ({_shortened(self._reading.query)})"
        try:
            with self._reading.database.attempt(what):
                if self._connection is None or self._connection.closed:
                    self._connection = self._reading.database.connect()
                with self._connection.cursor(name="penstock") as cursor:
                    cursor.execute(statement.encode(), (upto,) if after is None else (after, upto))
                    names = [column.name for column in cursor.description]
                    while rows := cursor.fetchmany(min(block_size, self._fitting)):
                        yield Rows(named_rows(names, rows))
                        self._fitting = max(1, BLOCK_BYTES * len(rows) // max(about(rows), 1))
                self._connection.rollback()
        except BaseException:
            self.close()
            raise


class PostgresSource(Source):
    """Gives named `Row`s. Made by `PostgresSource.builder()`."""

    bounded = True
    has_timestamps = False
    gives_columns = False

    def __init__(self, reading: Reading, splits: int, chunk: int) -> None:
        self._reading, self._splits, self._chunk = reading, splits, chunk

    @staticmethod
    def builder() -> PostgresSourceBuilder:
        """Starts a source; a connection, a table or query and a split column are required.

        Example:

            source = (
                PostgresSource.builder().set_connection("host=db dbname=shop").set_table("orders").set_split_column("id").build()
            )
            orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
        """
        return PostgresSourceBuilder()

    def create_enumerator(self) -> SplitEnumerator:
        return PostgresEnumerator(self._reading, self._splits, self._chunk)

    def create_reader(self) -> SplitReader:
        return PostgresReader(self._reading)


class PostgresSourceBuilder(DatabaseBuilder):
    """Builds a PostgresSource; each setter returns the builder."""

    _builds = "PostgresSource"

    def __init__(self) -> None:
        super().__init__()
        self._query = ""
        self._key = ""
        self._splits = _DEFAULT_SPLITS
        self._chunk = _DEFAULT_CHUNK

    def set_table(self, table: str) -> PostgresSourceBuilder:
        """All columns of a table or view, whose name is written as in SQL."""
        return self.set_query(f"select * from {text('PostgresSource.set_table', table)}")

    def set_query(self, query: str) -> PostgresSourceBuilder:
        """A select without parameters, whose result depends on nothing but the tables."""
        self._query = text("PostgresSource.set_query", query).strip().rstrip(";").replace("%", "%%")
        return self

    def set_split_column(self, column: str) -> PostgresSourceBuilder:
        """By whose ranges rows are read: one of the result's columns, never null, with an index; best a primary key."""
        self._key = text("PostgresSource.set_split_column", column)
        return self

    def set_splits(self, splits: int) -> PostgresSourceBuilder:
        """Sets how many ranges are read at once (4)."""
        self._splits = positive("PostgresSource.set_splits", splits)
        return self

    def set_chunk_size(self, rows: int) -> PostgresSourceBuilder:
        """Rows of one range, at most (25,000); fewer when `penstock.epoch.max-records` says so."""
        self._chunk = positive("PostgresSource.set_chunk_size", rows)
        return self

    def build(self) -> PostgresSource:
        """The source; ConfigurationError says what is missing."""
        if not self._query:
            raise ConfigurationError("PostgresSource: nothing to read: call set_table or set_query")
        if not self._key:
            raise ConfigurationError("PostgresSource: call set_split_column: rows are read in ranges of it")
        return PostgresSource(
            Reading(database=self._database(), query=self._query, key=self._key), self._splits, self._chunk
        )


def _shortened(query: str) -> str:
    text = " ".join(query.replace("%%", "%").split())
    return text if len(text) <= 120 else f"{text[:120]}…"
