"""Asynchronous I/O: many requests to another service under way at once, in one subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from penstock.common.time import Interval
from penstock.errors import JobDefinitionError
from penstock.functions.base import Function

ResultPredicate: TypeAlias = Callable[[list[Any]], bool]
ExceptionPredicate: TypeAlias = Callable[[Exception], bool]


class AsyncFunction(Function):
    """One request per record. `async_invoke` and `timeout` are called on the event loop's thread of the subtask, one
    at a time, so attributes need no locks; `open` and `close` on the subtask's own. What blocks inside a coroutine
    blocks every request of the subtask, and keeps time-outs from firing."""

    @abstractmethod
    async def async_invoke(self, value: Any) -> list[Any]:
        """The results for this record, possibly none. An exception fails the epoch, unless it is retried. After a
        failure the records of the epoch are asked for again: the service should take a request twice."""

    def timeout(self, value: Any) -> list[Any]:
        """The request for `value`, retries included, took too long: the results to use instead. Raises by default."""
        raise TimeoutError(f"Async function call has timed out for input: {value}")


class AsyncRetryPredicate(ABC):
    """Says which results and exceptions of a request are worth another attempt."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """True for results with which the request should be made again; None: whatever comes is taken."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """True for errors after which the request should be made again; None: every error counts."""


class AsyncRetryStrategy(ABC):
    """Says how often and how soon a request is sent again. One object serves all requests of a subtask: keep
    nothing between calls.
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """After `current_attempts` attempts, 1 or more, may there be another one?"""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The milliseconds to wait before the next attempt."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """Says which results and which exceptions count as failed and are worth another attempt."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """One attempt only; PyFlink's name for it."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy:
        """Up to `max_attempts` further attempts, each after the same pause."""
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy:
        """Up to `max_attempts` further attempts, each after a longer pause. Delays are milliseconds."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


@dataclass(eq=False)
class AsyncFunctionDescriptor:
    """An AsyncFunction and how it is applied."""

    class OutputMode(Enum):
        """How far requests may run ahead of the oldest one that is unanswered. Results keep the order of their records."""

        ORDERED = 0
        UNORDERED = 1

    async_function: AsyncFunction
    timeout: Interval
    capacity: int
    async_retry_strategy: AsyncRetryStrategy
    output_mode: OutputMode


class RetryPredicate(AsyncRetryPredicate):
    """An AsyncRetryPredicate made of two functions; None for one of them means that none of its kind is tried again."""

    def __init__(
        self, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy):
    """Every request is sent once."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return RetryPredicate(None, None)


NO_RETRY_STRATEGY: Final[AsyncRetryStrategy] = NoRetryStrategy()


class _LimitedRetries(AsyncRetryStrategy):
    def __init__(
        self,
        max_attempts: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
        **others: float,
    ) -> None:
        for name, value in {"max_attempts": max_attempts, **others}.items():
            if value <= 0:
                raise JobDefinitionError(f"a retry strategy needs {name} greater than zero, not {value}")
        self._max_attempts = max_attempts
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts  # as in Flink the first attempt is not one of them

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return self._predicate


class FixedDelayRetryStrategy(_LimitedRetries):
    """Up to `max_attempts` further attempts, each `backoff_time_millis` after the one before. Both must be positive."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate, backoff_time_millis=backoff_time_millis)
        self._backoff_time_millis = backoff_time_millis

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_time_millis


class ExponentialBackoffDelayRetryStrategy(_LimitedRetries):
    """The delay follows from the number of attempts alone. PyFlink keeps the last one in the strategy, which all
    requests of a subtask share, so that there one record's retries lengthen another's."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        delays = {"initial_delay": initial_delay, "max_retry_delay": max_retry_delay, "multiplier": multiplier}
        super().__init__(max_attempts, result_predicate, exception_predicate, **delays)
        self._initial_delay, self._max_retry_delay, self._multiplier = initial_delay, max_retry_delay, multiplier

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay = self._initial_delay
        for _ in range(current_attempts - 1):
            following = int(min(delay * self._multiplier, self._max_retry_delay))
            if following == delay:
                break
            delay = following
        return delay


def empty_result_predicate(result: list[Any] | None) -> bool:
    """The service found nothing."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """True for every exception: for retry strategies that try again after any error."""
    return error is not None


def exception_type_predicate(error: Exception | None, expected_error_type: type[Exception]) -> bool:
    """Errors of one type: `functools.partial(exception_type_predicate, expected_error_type=ConnectionError)`."""
    return isinstance(error, expected_error_type)
