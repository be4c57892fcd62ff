"""What a driver, or whoever stands in for it, answers: Flink's status codes, and Flink's shape of an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A status of HTTP and a document."""

    status: int
    body: dict[str, Any]


def refuse(status: int, message: str) -> Answer:
    """The answer to a request that is not carried out."""
    return Answer(status, {"errors": [message]})
