"""Typed configuration keys: `ConfigOptions.key("parallelism.default").int_type().default_value(1)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.common.configuration import Configuration, ConfigurationValue, to_bool, to_float, to_int, to_str

T = TypeVar("T", bound=ConfigurationValue)


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """A key with its type and, maybe, its default."""

    key: str
    convert: Callable[[str, Any], T]
    default: T | None = None

    def get(self, configuration: Configuration) -> T | None:
        """The configured value as this option's type, else the default."""
        value = configuration.get_raw(self.key)
        return self.default if value is None else self.convert(self.key, value)

    def set(self, configuration: Configuration, value: T) -> None:
        configuration.set_raw(self.key, self.convert(self.key, value))


class ConfigOptions:
    """Builds options: a key, then a type, then a default."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, to_bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, to_int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, to_int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, to_float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, to_float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, to_str)

    class TypedConfigOptionBuilder(Generic[T]):
        def __init__(self, key: str, convert: Callable[[str, Any], T]) -> None:
            self._key = key
            self._convert = convert

        def default_value(self, value: T) -> ConfigOption[T]:
            return ConfigOption(self._key, self._convert, self._convert(self._key, value))

        def no_default_value(self) -> ConfigOption[T]:
            return ConfigOption(self._key, self._convert)
