"""Configuration: keys and values, typed when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from penstock.common.secrets import hide_secret, hide_secrets
from penstock.errors import ConfigurationError

ConfigurationValue: TypeAlias = str | int | float | bool | bytes


class Configuration:
    """A mutable set of key/value pairs; a value written as one type can be read as another that fits it."""

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, ConfigurationValue] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, str]) -> Configuration:
        configuration = cls()
        configuration._values.update(map)
        return configuration

    def get_string(self, key: str, default_value: str) -> str:
        value = self._values.get(key)
        return default_value if value is None else to_str(key, value)

    def set_string(self, key: str, value: str) -> Configuration:
        return self.set_raw(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        value = self._values.get(key)
        return default_value if value is None else to_int(key, value)

    def set_integer(self, key: str, value: int) -> Configuration:
        return self.set_raw(key, to_int(key, value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        value = self._values.get(key)
        return default_value if value is None else to_bool(key, value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        return self.set_raw(key, to_bool(key, value))

    def get_float(self, key: str, default_value: float) -> float:
        value = self._values.get(key)
        return float(default_value) if value is None else to_float(key, value)

    def set_float(self, key: str, value: float) -> Configuration:
        return self.set_raw(key, to_float(key, value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        value = self._values.get(key)
        return default_value if value is None else bytearray(to_bytes(key, value))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        return self.set_raw(key, bytes(value))

    def get_raw(self, key: str) -> ConfigurationValue | None:
        """The value as it was set, None when it was not."""
        return self._values.get(key)

    def set_raw(self, key: str, value: ConfigurationValue) -> Configuration:
        if not key:
            raise ConfigurationError(f"A configuration key must not be empty; its value would have been {value!r}")
        self._values[key] = value
        return self

    def key_set(self) -> set[str]:
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Unset `key`; whether it was set."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Take over all pairs of `other`, with `prefix` put before every key."""
        self._values.update({(prefix or "") + key: value for key, value in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        target_dict.update(self.to_dict())

    def to_dict(self) -> dict[str, str]:
        return {key: to_str(key, value) for key, value in self._values.items()}

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The items of `a;b` or `[a, b]`."""
        text = value.strip() if value else ""
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


def to_str(key: str, value: ConfigurationValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case _:
            return str(value)


def to_int(key: str, value: ConfigurationValue) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(to_str(key, value).strip())
    except ValueError:
        raise _unusable(key, value, "an integer") from None


def to_float(key: str, value: ConfigurationValue) -> float:
    try:
        return float(to_str(key, value))
    except ValueError:
        raise _unusable(key, value, "a number") from None


def to_bool(key: str, value: ConfigurationValue) -> bool:
    match to_str(key, value).strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise _unusable(key, value, "true or false")


def to_bytes(key: str, value: ConfigurationValue) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return bytes.fromhex(to_str(key, value))
    except ValueError:
        raise _unusable(key, value, "bytes written as hexadecimal digits") from None


def _unusable(key: str, value: ConfigurationValue, wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"Configuration key {key!r} should be {wanted}, but is {hide_secret(key, repr(value))}: correct its value"
    )
