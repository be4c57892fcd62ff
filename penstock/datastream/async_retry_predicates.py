"""Ready-made conditions for a retry."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any] | None) -> bool:
    """The service found nothing."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """Any error."""
    return error is not None


def exception_type_predicate(error: Exception | None, expected_error_type: type[Exception]) -> bool:
    """Errors of one type: `functools.partial(exception_type_predicate, expected_error_type=ConnectionError)`."""
    return isinstance(error, expected_error_type)
