"""Clients of a Kafka cluster: imported when first used, configured in one place, every call bounded in time."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, Self

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


TOPIC_RULE = "1 to 249 letters a-z, A-Z, digits, dots, underscores and hyphens"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: object) -> bool:
    """True if a topic can have this name."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class KafkaError(PenstockError):
    """A cluster could not be reached or refused a request; names the cluster, the attempt and what to do."""


class KafkaSetupError(KafkaError, ConfigurationError):
    """Something is not there or not allowed on a cluster, and will not be however often it is tried: the job does
    not start.
    """


def refused_because(code: int) -> str | None:
    """What to do about an error that brokers would answer with again; None: it may pass by itself."""
    errors = confluent_kafka().KafkaError
    size = (
        "raise the topic's max.message.bytes, or lower the properties message.max.bytes and batch.size to it: the limit is for "
        "a batch of messages"
    )
    missing = "create the topic with as many partitions as the sink's partitioner uses"
    rights = "grant the user Write on topic and transactional id (and Create, for the marker topic)"
    return {
        errors.MSG_SIZE_TOO_LARGE: size,
        errors.RECORD_LIST_TOO_LARGE: size,
        errors.UNKNOWN_TOPIC_OR_PART: missing,
        errors._UNKNOWN_TOPIC: missing,
        errors._UNKNOWN_PARTITION: missing,
        errors.TOPIC_EXCEPTION: "give the topic a name that brokers take",
        errors.TOPIC_AUTHORIZATION_FAILED: rights,
        errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: rights,
        errors.CLUSTER_AUTHORIZATION_FAILED: rights,
        errors.INVALID_TRANSACTION_TIMEOUT: "lower transaction.timeout.ms to the brokers' transaction.max.timeout.ms",
        errors.POLICY_VIOLATION: "change the brokers' policy",
        errors.INVALID_RECORD: "change the topic's settings: a compacted one takes no messages without a key",
        errors._INVALID_ARG: "change the property",
    }.get(code)


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
    """The address of one cluster: properties of librdkafka and of our own. Picklable; clients are made from it."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)
        self.servers = self.properties.get("bootstrap.servers", "")
        self.wait_s = self.number(WAIT_PROPERTY, DEFAULT_WAIT_MS) / 1000
        self.number(DISCOVERY_PROPERTY, 0)
        for key in (WAIT_PROPERTY, MAX_RECORDS_PROPERTY):
            if self.number(key, 1) < 1:
                raise ConfigurationError(f"Kafka property {key} must be above 0, not {self.properties[key]}")

    def number(self, key: str, default: int) -> int:
        """A property as an int; ConfigurationError if it is none."""
        text = self.properties.get(key)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise ConfigurationError(f"Kafka property {key}: {text!r} is not a whole number") from None

    def check_properties(self, builder: str, client: Any) -> None:
        """Names and values that librdkafka does not know are an error now. Others, such as files of certificates, may be right
        where the job runs and not here. Without brokers a client connects to nobody."""
        config = {key: value for key, value in self._config({}, {}).items() if key != "bootstrap.servers"}
        try:
            client({**config, "group.id": "penstock-check"} if "Consumer" in client.__name__ else config, logger=_log)
        except confluent_kafka().KafkaException as error:
            words = _words(error).strip()
            if words.startswith(("No such configuration property", "Invalid value", "Configuration property")):
                raise ConfigurationError(
                    f"{builder}: {words}. Properties are librdkafka's, and the connector's own: docs/howto/kafka.md"
                ) from error

    def truth(self, key: str, default: bool) -> bool:
        """A property as a bool; anything but `true` is False."""
        return str(self.properties.get(key, default)).lower() == "true"

    def _config(self, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in self.properties.items() if key not in _OURS}
        return {"log_level": 3, **defaults, **given, **fixed}

    def admin(self) -> Any:
        """A new client for the administration of topics."""
        kept = {"group.id", "transaction.timeout.ms", "transactional.id", "enable.idempotence", "acks", "linger.ms"}
        config = {key: value for key, value in self._config({}, {}).items() if key not in kept}
        with self.attempt("creating a client"):
            return confluent_kafka().admin.AdminClient(config, logger=_log)

    def consumer(self, *, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
        """A new consumer. `defaults` are below the user's properties, `fixed` above them."""
        with self.attempt("creating a consumer"):
            return confluent_kafka().Consumer(self._config(defaults, fixed), logger=_log)

    def producer(self, *, defaults: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
        """A new producer. `defaults` are below the user's properties, `fixed` above them."""
        with self.attempt("creating a producer"):
            return confluent_kafka().Producer(self._config(defaults, fixed), logger=_log)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Errors of the client library as ours, with what was attempted."""
        try:
            yield
        except (confluent_kafka().KafkaException, TimeoutError) as error:
            raise self.failure(what, error) from error

    def failure(self, what: str, error: object) -> KafkaError:
        """The error for a failed call: what was tried, what the broker said, what to do."""
        if isinstance(error, confluent_kafka().KafkaException) and (because := refused_because(error.args[0].code())):
            return KafkaError(f"Kafka at {self.servers}: {what} was refused: {_words(error)}. To do: {because}")
        return KafkaError(
            f"Kafka at {self.servers}: {what} failed within {self.wait_s:g} s: {_words(error)}. Check that the brokers run "
            f"and can be reached from here; with a restart strategy the job tries again ({WAIT_PROPERTY} bounds one try)"
        )

    def each(self, futures: Mapping[Any, Any], what: str) -> dict[Any, Any]:
        """Results of a request to the admin client, one for each thing asked about."""
        with self.attempt(what):
            return {asked: future.result(timeout=self.wait_s + 5) for asked, future in futures.items()}


class BuilderWithProperties:
    """The client's properties, which source and sink are built with alike."""

    _builds: ClassVar[str]
    _fixed: ClassVar[Mapping[str, str]]  # properties that the connector sets itself, and what to say of them

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """The brokers to begin with: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_property(self, key: str, value: str) -> Self:
        """A property of librdkafka or of the connector (docs/howto/kafka.md)."""
        if key in self._fixed:
            raise ConfigurationError(f"{self._builds}: {key} is set by {self._fixed[key]}")
        self._properties[key] = self._written(key, value)
        return self

    def _written(self, key: str, value: object) -> str:
        """Numbers and truth values as librdkafka writes them; None would become a word."""
        if value is None or (key == "bootstrap.servers" and not str(value).strip()):
            raise ConfigurationError(
                f"{self._builds}: the property {key} is {value!r}: give it a value, or leave it out"
            )
        return str(value).lower() if isinstance(value, bool) else str(value)

    def set_properties(self, props: Mapping[str, str]) -> Self:
        """Sets several properties, as `set_property` does."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def _require_servers(self) -> None:
        confluent_kafka()  # says at once which extra is missing
        if not self._properties.get("bootstrap.servers"):
            raise ConfigurationError(f"{self._builds}: no brokers are named: call set_bootstrap_servers")

    def _cluster(self, client: Any) -> Cluster:
        cluster = Cluster(self._properties)
        cluster.check_properties(self._builds, client)
        return cluster


def _words(error: object) -> str:
    arguments = getattr(error, "args", ())
    first = arguments[0] if arguments else error
    text: Any = getattr(first, "str", None)
    return str(text()) if callable(text) else str(error) or type(error).__name__
