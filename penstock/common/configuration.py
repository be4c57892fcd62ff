"""Configuration: keys and values, typed when they are read.

The configuration a process was started with: what `penstock run -D key=value` hands to an unchanged program.

It travels in an environment variable, so that it reaches the program whether it runs in this process or in a child, and
lies below everything the program sets itself, as Flink's command line does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from penstock.common.option_types import BOOLEAN, FLOAT, HEXADECIMAL, INTEGER, TEXT, OptionType, V
from penstock.common.secrets import hide_secrets
from penstock.errors import ConfigurationError

ConfigurationValue: TypeAlias = str | int | float | bool | bytes


class Configuration:
    """A mutable set of key/value pairs; a value written as one type can be read as another that fits it.

    Example:

        config = Configuration()
        config.set_string("penstock.job.dir", "/data/jobs/orders").set_integer("parallelism.default", 4)
        env = StreamExecutionEnvironment.get_execution_environment(config)
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, ConfigurationValue] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, str]) -> Configuration:
        """A configuration with these pairs."""
        configuration = cls()
        configuration._values.update(map)
        return configuration

    def get_string(self, key: str, default_value: str) -> str:
        """The value as text; `default_value` if the key is not set."""
        return self._read(key, TEXT, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Sets a key to a text."""
        return self.set_raw(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """The value as an int; `default_value` if the key is not set. ConfigurationError if it is no whole number."""
        return self._read(key, INTEGER, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Sets a key to an int; anything else is refused."""
        return self.set_raw(key, INTEGER.read(key, to_str(value)))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The value as a bool; `default_value` if the key is not set. ConfigurationError if it is neither true nor
        false.
        """
        return self._read(key, BOOLEAN, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Sets a key to a bool; anything else is refused."""
        return self.set_raw(key, BOOLEAN.read(key, to_str(value)))

    def get_float(self, key: str, default_value: float) -> float:
        """The value as a float; `default_value` if the key is not set. ConfigurationError if it is no number."""
        return self._read(key, FLOAT, float(default_value))

    def set_float(self, key: str, value: float) -> Configuration:
        """Sets a key to a float; anything else is refused."""
        return self.set_raw(key, FLOAT.read(key, to_str(value)))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """The value as bytes, which are hexadecimal as text; `default_value` if the key is not set."""
        return bytearray(self._read(key, HEXADECIMAL, default_value))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Sets a key to bytes."""
        return self.set_raw(key, bytes(value))

    def _read(self, key: str, type: OptionType[V], default: V) -> V:
        value = self._values.get(key)
        return default if value is None else type.read(key, to_str(value))

    def get_raw(self, key: str) -> ConfigurationValue | None:
        """The value as it was set, None when it was not."""
        return self._values.get(key)

    def set_raw(self, key: str, value: ConfigurationValue) -> Configuration:
        """Sets a key without a check of the value. An empty key is refused."""
        if not key:
            raise ConfigurationError(f"A configuration key must not be empty; its value would have been {value!r}")
        self._values[key] = value
        return self

    def key_set(self) -> set[str]:
        """The keys that are set."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """True if the key is set; older names of an option are keys of their own here."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Unset `key`; whether it was set."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Take over all pairs of `other`, with `prefix` put before every key."""
        self._values.update({(prefix or "") + key: value for key, value in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Adds all pairs to `target_dict`, values as they were set."""
        for key, value in self._values.items():
            target_dict[key] = bytearray(value) if isinstance(value, bytes) else value

    def to_dict(self) -> dict[str, str]:
        """All pairs, values as text. Secrets are not hidden; `str(configuration)` hides them."""
        return {key: to_str(value) for key, value in self._values.items()}

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The items of `a;b`, `[a, b]` or a list of YAML with an item on each line."""
        text = value.strip() if value else ""
        lines = [line.strip() for line in text.splitlines()]
        if lines and all(line.startswith("- ") for line in lines):
            text = ";".join(line[2:] for line in lines)
        if text.startswith("[") and text.endswith("]"):
            items = text[1:-1].split(",")
        else:
            items = text.split(";")
        return [item.strip().strip("'\"") for item in items if item.strip()]

    def __copy__(self) -> Configuration:
        return Configuration(self)

    def __deepcopy__(self, memodict: dict[int, Any] | None = None) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        # Only keys: equal configurations may hold "1" and 1, which differ as values.
        return hash(frozenset(self._values))

    def __str__(self) -> str:
        shown = (f"{key}={value}" for key, value in hide_secrets(self.to_dict()).items())
        return "{" + ", ".join(shown) + "}"

    __repr__ = __str__


def to_str(value: ConfigurationValue) -> str:
    """The text form of a value: `true` or `false` for a bool, hexadecimal for bytes."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case _:
            return str(value)


VARIABLE: Final = "PENSTOCK_CONFIGURATION"


class GlobalConfiguration:
    """The configuration of this process, which every environment starts from: `penstock run` fills it."""

    @staticmethod
    def load_configuration() -> Configuration:
        """A fresh copy; empty when the process was started without one."""
        text = os.environ.get(VARIABLE)
        if not text:
            return Configuration()
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(
                f"{VARIABLE} is not a JSON object ({error}): unset it, or let `penstock run` set it"
            ) from None
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ConfigurationError(
                f"{VARIABLE} should be a JSON object of strings: unset it, or let `penstock run` set it"
            )
        return Configuration.from_dict(values)

    @staticmethod
    def to_environment(values: Mapping[str, str]) -> dict[str, str]:
        """The environment variable that gives `values` to this process, or to a child that is started with it."""
        return {VARIABLE: json.dumps(dict(values))}
