"""Typed configuration keys: `ConfigOptions.key("parallelism.default").int_type().default_value(1)`."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from penstock.common.configuration import Configuration
from penstock.common.option_types import BOOLEAN, FLOAT, INTEGER, TEXT, OptionType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T]):
    """A key with the type of its values and its default. As text it is its key."""

    key: str
    type: OptionType[T]
    default: T
    meaning: str = ""
    otherwise: str = ""  # the default in words, where it is not a constant
    older: tuple[str, ...] = ()  # deprecated keys; this option's own goes over them

    @property
    def keys(self) -> tuple[str, ...]:
        """The key and its older names, the newest first."""
        return (self.key, *self.older)

    def get(self, configuration: Configuration | Mapping[str, str]) -> T:
        """The configured value, else the default. ConfigurationError if it is not allowed."""
        values = configuration.to_dict() if isinstance(configuration, Configuration) else configuration
        for key in self.keys:
            text = values.get(key)
            if text is not None and (text.strip() or not self.type.blank_is_unset):
                return self.type.read(key, text)
        return self.default

    def set(self, configuration: Configuration | MutableMapping[str, str], value: T) -> None:
        """ConfigurationError if the value is not allowed."""
        text = self.type.write(value)
        self.type.read(self.key, text)
        if isinstance(configuration, Configuration):
            configuration.set_string(self.key, text)
        else:
            configuration[self.key] = text

    def __str__(self) -> str:
        return self.key


def setting(option: ConfigOption[T]) -> T:
    """A field of a dataclass that `settings_of` fills from a configuration; its default is the option's."""
    return field(default=option.default, metadata={"option": option})


def settings_of(kind: Any, configuration: Mapping[str, str]) -> dict[str, Any]:
    """What a configuration says of all fields of a dataclass that were made with `setting`."""
    return {f.name: f.metadata["option"].get(configuration) for f in fields(kind) if "option" in f.metadata}


class ConfigOptions:
    """Builds options: a key, then a type, then a default."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Starts an option with this key.

        Example:

            RETRIES = ConfigOptions.key("my.retries").int_type().default_value(3)
        """
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """An option that has a key and needs a type."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Values are true or false."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, INTEGER)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, INTEGER)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are floating-point numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, FLOAT)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are floating-point numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, FLOAT)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Values are texts."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, TEXT)

    class TypedConfigOptionBuilder(Generic[T]):
        """An option that has a key and a type and needs a default."""

        def __init__(self, key: str, type: OptionType[T]) -> None:
            self._key = key
            self._type = type

        def default_value(self, value: T) -> ConfigOption[T]:
            """The option; where it is not set it is `value`, which must fit the type."""
            default = self._type.read(self._key, self._type.write(value))
            return ConfigOption(self._key, self._type, default)

        def no_default_value(self) -> ConfigOption[T | None]:
            """The option; where it is not set it is None."""
            option: ConfigOption[T | None] = ConfigOption(self._key, self._type, None)
            return option
