"""What goes wrong with the data itself, as opposed to the program or the storage."""

from __future__ import annotations

from penstock.errors import PenstockError


class BadRecordError(PenstockError):
    """A record does not fit its format or schema; names the file and position, or the value."""
