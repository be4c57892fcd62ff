"""Connections to a PostgreSQL database: the library is imported when first used, and every wait is bounded."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, Self

from penstock.connectors.builder_arguments import positive
from penstock.errors import ConfigurationError, PenstockError

_log = logging.getLogger("penstock.postgres")

DEFAULT_WAIT_MS = 15_000
_RETRY_S = 0.2
_WRITTEN = (
    "write libpq's keywords, with quotes around values that have spaces (host=db dbname=shop password='two words'), or a URI, "
    "with special characters of the password as percent codes (%40 for @)"
)
# Refused for good: who asks again gets the same answer. Connections fail without an SQLSTATE, so the words must do; a server
# that speaks another language is asked until the wait is over.
_FINAL = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(?:database|role) \".*\" does not exist"
    r"|permission denied for database|is not permitted to log in"
)


# Classes of SQLSTATE that say something of the statement and its rows, and not of the server's state: values, constraints, what is
# not there or not allowed, limits, triggers.
_REFUSING = frozenset(("0A", "0L", "0P", "21", "22", "23", "26", "27", "2F", "38", "39", "42", "44", "54", "P0"))


class PostgresError(PenstockError):
    """A database could not be reached or refused a statement; names the database, the attempt and what to do."""


class PostgresSetupError(PostgresError, ConfigurationError):
    """Something is not there or not allowed in a database, and will not be however often it is tried: the job does
    not start.
    """


def refuses(error: BaseException | None) -> bool:
    """Whether the database would give the same answer to the same statement again."""
    return str(getattr(error, "sqlstate", None) or "")[:2] in _REFUSING


def is_final(error: PostgresError) -> bool:
    """Whether trying again is of no use, not even for a server that restarts."""
    return refuses(error.__cause__) or _FINAL.search(str(error.__cause__)) is not None


def psycopg() -> ModuleType:
    """The client library; an extra, so that jobs without PostgreSQL do not need it."""
    try:
        import psycopg as module
        import psycopg.conninfo
        import psycopg.sql
    except ImportError as error:
        raise ConfigurationError(
            f"the PostgreSQL connector needs psycopg ({error}): install it with `pip install 'penstock[postgres]'`"
        ) from error
    return module


class Database:
    """The address of one database: libpq's connection string or URI. Picklable; connections are made from it."""

    def __init__(self, conninfo: str, wait_ms: int = DEFAULT_WAIT_MS) -> None:
        library = psycopg()
        if wait_ms <= 0:
            raise ConfigurationError(f"PostgreSQL: the wait must be positive, not {wait_ms} ms")
        try:
            parts = library.conninfo.conninfo_to_dict(conninfo)
        except library.ProgrammingError:
            # Neither the library's words nor the error as a cause: they quote what they could not read, maybe of a password.
            raise ConfigurationError(f"PostgreSQL: the connection string cannot be read: {_WRITTEN}") from None
        if "@" in str(parts.get("host", "")):  # the rest of a password, which would be shown as part of the name below
            raise ConfigurationError(f"PostgreSQL: the host in the connection string has an @: {_WRITTEN}")
        self.conninfo, self.wait_s = conninfo, wait_ms / 1000
        # For messages: never the whole string, which may hold a password.
        self.name = f"{parts.get('host', 'local socket')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"

    def connect(self) -> Any:
        """A connection in UTC whose waits for locks, and idle transactions of whom it may leave behind, are bounded. Tries
        until the wait is over: a server that restarts refuses connections at once."""
        library = psycopg()
        wait = max(1, round(self.wait_s))
        defaults: dict[str, Any] = {
            "connect_timeout": wait,
            "keepalives_idle": wait,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": wait * 1000,
            "application_name": "penstock",
        }
        given = library.conninfo.conninfo_to_dict(self.conninfo)
        deadline = time.monotonic() + self.wait_s
        while True:
            try:
                connection = library.connect(self.conninfo, **{k: v for k, v in defaults.items() if k not in given})
                break
            except library.OperationalError as error:
                if _FINAL.search(str(error)) or time.monotonic() + _RETRY_S > deadline:
                    raise self.failure("connecting", error) from error
                time.sleep(_RETRY_S)
        with self.attempt("setting up a connection"):
            milliseconds = str(round(self.wait_s * 1000))
            for name, value in (
                ("timezone", "UTC"),
                ("datestyle", "ISO"),
                ("lock_timeout", milliseconds),
                # A driver that hangs inside a transaction must not hold its locks for ever.
                ("idle_in_transaction_session_timeout", str(max(60_000, 2 * round(self.wait_s * 1000)))),
            ):
                connection.execute("select set_config(%s, %s, false)", (name, value))
            connection.commit()
        return connection

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Errors of the client library as ours, with what was attempted."""
        try:
            yield
        except psycopg().Error as error:
            raise self.failure(what, error) from error

    def failure(self, what: str, error: object) -> PostgresError:
        """The error for a failed call: what was tried, what the server said, what to do."""
        text = " ".join(str(error).split()) or type(error).__name__
        if (isinstance(error, BaseException) and refuses(error)) or _FINAL.search(text):
            return PostgresError(
                f"PostgreSQL at {self.name}: {what} failed: {text}. Trying again does not help: correct the connection, the name "
                "or the statement, or grant the right"
            )
        return PostgresError(
            f"PostgreSQL at {self.name}: {what} failed: {text}. Check that the server runs and can be reached from here, and "
            f"that the user may do this; with a restart strategy the job tries again (one try waits {self.wait_s:g} s)"
        )


class DatabaseBuilder:
    """The connection, which source and sink are built with alike."""

    _builds: ClassVar[str]

    def __init__(self) -> None:
        self._conninfo, self._wait_ms = "", DEFAULT_WAIT_MS

    def set_connection(self, conninfo: str) -> Self:
        """libpq's keywords (`host=… dbname=…`) or URI. It travels with the job: keep passwords in a password file."""
        if not isinstance(conninfo, str):
            raise ConfigurationError(
                f"{self._builds}.set_connection takes libpq's keywords or a URI as text, not {type(conninfo).__name__}"
            )
        self._conninfo = conninfo
        return self

    def set_wait_ms(self, wait_ms: int) -> Self:
        """Sets how long one try waits for the database before it fails the epoch (15,000)."""
        self._wait_ms = positive(f"{self._builds}.set_wait_ms", wait_ms)
        return self

    def _database(self) -> Database:
        return Database(self._conninfo, self._wait_ms)


class KeepsConnection:
    """Base of committer, enumerator and reader: a connection that outlives an epoch."""

    _connection: Any = None

    def close(self) -> None:
        """Closes the connection; the next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def insist(self, what: str, do: Callable[[], None]) -> None:
        """A connection that was kept may have died with a server that is back already: then it is done on a new one. `do` must be
        safe to repeat."""
        kept = self._connection is not None
        try:
            do()
        except PostgresError as error:
            self.close()
            if not (kept and isinstance(error.__cause__, psycopg().OperationalError)):
                raise
            _log.warning("%s is tried again on a new connection: %s", what, error)
            do()
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()  # of a job that was dropped after it failed
