"""AsyncDataStream: how an AsyncFunction is applied to a stream."""

from __future__ import annotations

import inspect
from typing import Any

from penstock.common.time import Duration, Interval, Time
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.data_stream import DataStream
from penstock.errors import JobDefinitionError
from penstock.functions.asynchronous import (
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryStrategy,
)
from penstock.operators.async_wait import AsyncWaitOperator


class AsyncDataStream:
    """`timeout` is for a record, all its attempts together; 0 means none. `capacity` bounds, in each subtask, the
    requests under way.

    An epoch waits for its own requests: at a barrier nothing is under way, so nothing of them is in a checkpoint, and a
    replayed epoch makes all its requests again. Results leave in the order of the input in both modes, because a replay
    must not send them to other places; a watermark stays behind the results of the records before it. With
    `unordered_wait` a slow request does not keep others from being made.

    Example:

        priced = AsyncDataStream.unordered_wait(items, AskForPrice(), Time.seconds(5), capacity=100)
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction,
        timeout: Interval,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Up to `capacity` requests run, however far behind the slowest is.

        Example:

            class Asks(AsyncFunction):
                async def async_invoke(self, value):
                    return [value.upper()]

            AsyncDataStream.unordered_wait(words, Asks(), Time.seconds(5))  # gives ["BE", "TO", "TO"]
        """
        return AsyncDataStream.unordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction,
        timeout: Interval,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Like `unordered_wait`; a request that `async_retry_strategy` calls failed is sent again until it succeeds,
        the strategy gives up or `timeout` is over.

        Example:

            retry = AsyncRetryStrategy.fixed_delay(3, 100, None, lambda error: isinstance(error, OSError))
            AsyncDataStream.unordered_wait_with_retry(words, Echo(), Time.seconds(5), retry)  # gives ["be", "to", "to"]
        """
        return _apply(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, ordered=False)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction,
        timeout: Interval,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """A request is made only when it is less than `capacity` records ahead of the oldest unanswered one.

        Example:

            AsyncDataStream.ordered_wait(words, Echo(), Time.seconds(5), capacity=10)  # gives ["be", "to", "to"]
        """
        return AsyncDataStream.ordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction,
        timeout: Interval,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Like `ordered_wait`; a request that `async_retry_strategy` calls failed is sent again until it succeeds, the
        strategy gives up or `timeout` is over.

        Example:

            retry = AsyncRetryStrategy.fixed_delay(3, 100, None, lambda error: isinstance(error, OSError))
            AsyncDataStream.ordered_wait_with_retry(words, Echo(), Time.seconds(5), retry)  # gives ["be", "to", "to"]
        """
        return _apply(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, ordered=True)


def _apply(
    data_stream: Any,
    function: Any,
    timeout: Any,
    retry: Any,
    capacity: Any,
    output_type: TypeInformation | None,
    *,
    ordered: bool,
) -> DataStream:
    verb = "ordered_wait" if ordered else "unordered_wait"
    if not isinstance(data_stream, DataStream):
        raise JobDefinitionError(f"{verb} takes a DataStream first, not {data_stream!r}")
    if not isinstance(function, AsyncFunction):
        raise JobDefinitionError(f"{verb} takes an AsyncFunction (an instance), not {function!r}")
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise JobDefinitionError(
            f"{verb}: {type(function).__name__}.async_invoke must be declared with `async def`; for a function that blocks, "
            "use map() with a larger parallelism, or `await asyncio.to_thread(...)` inside it"
        )
    if not isinstance(timeout, (Time, Duration)):
        raise JobDefinitionError(f"{verb} takes its time-out as a Time, such as Time.seconds(10), not {timeout!r}")
    if not isinstance(capacity, int) or capacity < 1:
        raise JobDefinitionError(f"{verb}: the capacity must be at least 1, not {capacity!r}")
    if not isinstance(retry, AsyncRetryStrategy) or retry.get_retry_predicate() is None:
        raise JobDefinitionError(
            f"{verb}_with_retry takes an AsyncRetryStrategy that has a retry predicate, not {retry!r}: "
            "use AsyncRetryStrategy.fixed_delay(...) or exponential_backoff(...)"
        )
    if retry is not NO_RETRY_STRATEGY and timeout.to_milliseconds() <= 0:
        raise JobDefinitionError(f"{verb}_with_retry needs a time-out: it is what ends the retries of a record")
    mode = AsyncFunctionDescriptor.OutputMode.ORDERED if ordered else AsyncFunctionDescriptor.OutputMode.UNORDERED
    descriptor = AsyncFunctionDescriptor(function, timeout, capacity, retry, mode)
    operator = AsyncWaitOperator(descriptor, data_stream.get_type())
    return data_stream._apply("async wait operator", operator, output_type, stateful=True)
