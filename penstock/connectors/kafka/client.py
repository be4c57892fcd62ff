"""Clients of a Kafka cluster: imported when first used, configured in one place, every call bounded in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from penstock.errors import ConfigurationError, PenstockError

# librdkafka reports what it tries to reach on stderr by default; as log records they can be filtered.
_log = logging.getLogger("penstock.kafka")

# How long a call waits for a broker before it fails the epoch; the restart strategy decides what follows.
WAIT_PROPERTY = "penstock.wait.ms"
DEFAULT_WAIT_MS = 15_000

# Properties of Flink's or our own connector, which librdkafka would refuse.
DISCOVERY_PROPERTY = "partition.discovery.interval.ms"
COMMIT_PROPERTY = "commit.offsets.on.checkpoint"
MAX_RECORDS_PROPERTY = "penstock.max.records.per.epoch"
_OURS = {WAIT_PROPERTY, DISCOVERY_PROPERTY, COMMIT_PROPERTY, MAX_RECORDS_PROPERTY}


class KafkaError(PenstockError):
    """A cluster could not be reached or refused a request; names the cluster, the attempt and what to do."""


def confluent_kafka() -> ModuleType:
    """The client library; an extra, so that jobs without Kafka do not need it."""
    try:
        import confluent_kafka as module
        import confluent_kafka.admin
    except ImportError as error:
        raise ConfigurationError(
            f"the Kafka connector needs confluent-kafka ({error}): install it with `pip install 'penstock[kafka]'`"
        ) from error
    return module


class Cluster:
    """How to reach one cluster: properties of librdkafka and of our own. Picklable; clients are made from it."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)
        self.servers = self.properties.get("bootstrap.servers", "")
        self.wait_s = self.number(WAIT_PROPERTY, DEFAULT_WAIT_MS) / 1000

    def number(self, key: str, default: int) -> int:
        text = self.properties.get(key)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise ConfigurationError(f"Kafka property {key}: {text!r} is not a whole number") from None

    def truth(self, key: str, default: bool) -> bool:
        return str(self.properties.get(key, default)).lower() == "true"

    def _config(self, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in self.properties.items() if key not in _OURS}
        return {"log_level": 3, **defaults, **given, **fixed}

    def admin(self) -> Any:
        kept = {"group.id", "transaction.timeout.ms", "transactional.id", "enable.idempotence", "acks", "linger.ms"}
        config = {key: value for key, value in self._config({}, {}).items() if key not in kept}
        return confluent_kafka().admin.AdminClient(config, logger=_log)

    def consumer(self, *, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
        return confluent_kafka().Consumer(self._config(defaults, fixed), logger=_log)

    def producer(self, *, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
        return confluent_kafka().Producer(self._config(defaults, fixed), logger=_log)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Errors of the client library as ours, with what was attempted."""
        try:
            yield
        except (confluent_kafka().KafkaException, TimeoutError) as error:
            raise self.failure(what, error) from error

    def failure(self, what: str, error: object) -> KafkaError:
        return KafkaError(
            f"Kafka at {self.servers}: {what} failed within {self.wait_s:g} s: {_words(error)}. Check that the brokers run "
            f"and can be reached from here; with a restart strategy the job tries again ({WAIT_PROPERTY} bounds one try)"
        )

    def each(self, futures: Mapping[Any, Any], what: str) -> dict[Any, Any]:
        """Results of a request to the admin client, one for each thing asked about."""
        with self.attempt(what):
            return {asked: future.result(timeout=self.wait_s + 5) for asked, future in futures.items()}


def _words(error: object) -> str:
    arguments = getattr(error, "args", ())
    first = arguments[0] if arguments else error
    text: Any = getattr(first, "str", None)
    return str(text()) if callable(text) else str(error) or type(error).__name__
