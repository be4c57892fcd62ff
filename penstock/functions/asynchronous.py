"""Asynchronous I/O: many requests to another service under way at once, in one subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

from penstock.common.time import Interval
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
    """When to try again."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """True for results with which the request should be made again; None: whatever comes is taken."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """True for errors after which the request should be made again; None: every error counts."""


class AsyncRetryStrategy(ABC):
    """How often and how soon to try again. One object serves all requests of a subtask: keep nothing between calls."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """After `current_attempts` attempts, 1 or more, may there be another one?"""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """How long to wait before it."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate: ...

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """One attempt only; PyFlink's name for it."""
        from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy:
        """Up to `max_attempts` further attempts, each after the same pause."""
        from penstock.datastream.async_retry_strategies import FixedDelayRetryStrategy

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
        from penstock.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class AsyncFunctionDescriptor:
    """An AsyncFunction and how it is applied."""

    class OutputMode(Enum):
        ORDERED = 0
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction,
        timeout: Interval,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy,
        output_mode: OutputMode,
    ) -> None:
        self.async_function = async_function
        self.timeout = timeout
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode
