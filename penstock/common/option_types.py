"""Types of options: how a value is written, and which values are allowed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final, Generic, TypeVar

from penstock.common.secrets import hide_secret
from penstock.errors import ConfigurationError

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
N = TypeVar("N", int, float)
S = TypeVar("S", bound=str)


class OptionType(ABC, Generic[V_co]):
    """Reads the text of a configuration. Immutable, equal by value."""

    example: ClassVar[str] = ""  # the end of an error
    blank_is_unset: ClassVar[bool] = False

    @abstractmethod
    def allowed(self) -> str:
        """The allowed values in words: `a whole number of at least 1`."""

    @abstractmethod
    def parse(self, text: str) -> V_co:
        """Raises ValueError if the text is no allowed value."""

    def write(self, value: object) -> str:
        """The text that is read as `value`."""
        return str(value)

    def read(self, key: str, text: str) -> V_co:
        """As `parse`; the error names the key, the value found and what is expected."""
        try:
            return self.parse(text)
        except ValueError:
            raise ConfigurationError(
                f"Configuration key {key!r} should be {self.allowed()}, but is {hide_secret(key, repr(text))}{self.example}"
            ) from None


@dataclass(frozen=True)
class _Ranged(OptionType[N]):
    least: N | None = None
    most: N | None = None
    noun: ClassVar[str]

    def allowed(self) -> str:
        least, most = (None if bound is None else self.write(bound) for bound in (self.least, self.most))
        if most is None:
            return self.noun if least is None else f"{self.noun} of at least {least}"
        return f"{self.noun} of at most {most}" if least is None else f"{self.noun} from {least} to {most}"

    def within(self, value: N) -> N:
        """The value if it is in the range, else ValueError."""
        too_small = self.least is not None and not value >= self.least  # "nan" is neither smaller nor larger
        if too_small or (self.most is not None and not value <= self.most):
            raise ValueError(value)
        return value


class Whole(_Ranged[int]):
    """A whole number."""

    noun = "a whole number"

    def parse(self, text: str) -> int:
        return self.within(int(text))


class Number(_Ranged[float]):
    """A number, maybe with a fraction."""

    noun = "a number"

    def parse(self, text: str) -> float:
        return self.within(float(text))


class _Quantity(_Ranged[int]):
    """A number and a unit; a number alone counts the smallest unit."""

    units: ClassVar[Mapping[str, int]]  # the largest last
    names: ClassVar[Mapping[str, str]]  # further names of units

    def parse(self, text: str) -> int:
        match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-z]*)\s*", text.lower())
        unit = None if match is None else self.units.get(self.names.get(match[2], match[2]))
        if match is None or unit is None:
            raise ValueError(text)
        return self.within(int(Decimal(match[1]) * unit))

    def write(self, value: object) -> str:
        """In the largest unit that gives a whole number."""
        assert isinstance(value, int)
        name, unit = max(
            (of for of in self.units.items() if value % of[1] == 0), key=lambda of: of[1] if value else -of[1]
        )
        return f"{value // unit} {name}"


class DurationMs(_Quantity):
    """A duration, in milliseconds. At most 100 years: all clocks and timers can tell that."""

    noun = "a duration"
    units: ClassVar = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    names = {"": "ms", "m": "min", "sec": "s", "secs": "s", "millis": "ms"} | {
        name: unit
        for unit, word in (("ms", "millisecond"), ("s", "second"), ("min", "minute"), ("h", "hour"), ("d", "day"))
        for name in (word, f"{word}s")
    }
    example = "; write for example '500 ms', '10 s' or '5 min', and at most '36500 d'"
    longest: ClassVar[int] = 36_500 * units["d"]

    def __init__(self, least: int | None = None) -> None:
        super().__init__(least)

    def parse(self, text: str) -> int:
        if (value := super().parse(text)) > self.longest:
            raise ValueError(text)
        return value


class MemoryBytes(_Quantity):
    """A size of memory or of a file, in bytes."""

    noun = "a size"
    units: ClassVar = {"bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
    names = {"": "bytes", "b": "bytes"} | {name: f"{name[0]}b" for p in "kmgt" for name in (p, f"{p}ib")}
    example = "; write for example '64 kb', '256 mb' or '1 gb'"


@dataclass(frozen=True)
class Choice(OptionType[V]):
    """One of some words, in any case, with `-` or `_` between its parts. `also` holds words that the page does not offer."""

    words: Mapping[str, V] = field(hash=False)
    also: Mapping[str, V] = field(default_factory=dict, hash=False)

    def allowed(self) -> str:
        *others, last = (repr(word) for word in self.words)
        return f"{', '.join(others)} or {last}"

    def parse(self, text: str) -> V:
        wanted = _plain(text)
        for word, value in (*self.words.items(), *self.also.items()):
            if _plain(word) == wanted:
                return value
        raise ValueError(text)

    def write(self, value: object) -> str:
        return next((word for word, meant in self.words.items() if meant == value), str(value))


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_")


def each(*words: S) -> dict[str, S]:
    """For a Choice whose words are the values."""
    return {word: word for word in words}


class Boolean(Choice[bool]):
    """`true` or `false`."""

    def __init__(self) -> None:
        super().__init__({"true": True, "false": False})

    def allowed(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Text(OptionType[str]):
    """Any text, or what matches `pattern`, which `noun` describes."""

    noun: str = "a text"
    pattern: str = r"(?s:.*)"

    def allowed(self) -> str:
        return self.noun

    def parse(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(text)
        return text


class Path(Text):
    """A path or a URL; an empty one is none."""

    blank_is_unset = True

    def __init__(self) -> None:
        super().__init__("a path or URL")


@dataclass(frozen=True)
class Texts(OptionType[tuple[str, ...]]):
    """Several texts between separators; the first separator is the one to write."""

    separators: str = ","

    def allowed(self) -> str:
        return f"a list with {self.separators[0]!r} between its items"

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(part for part in re.split(f"[{re.escape(self.separators)}]", text) if part)

    def write(self, value: object) -> str:
        assert isinstance(value, tuple)
        return self.separators[0].join(value)


class Pairs(OptionType[Mapping[str, str]]):
    """Flink's maps: `key:value` pairs with commas between them; quotes hide both."""

    def allowed(self) -> str:
        return "pairs such as 'key:value,other:value'"

    def parse(self, text: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for pair in _outside_quotes(text, ","):
            key, *value = _outside_quotes(pair, ":")
            if not value:
                raise ValueError(text)
            found[_unquoted(key)] = _unquoted(":".join(value))
        return found

    def write(self, value: object) -> str:
        assert isinstance(value, Mapping)
        return ",".join(f"{_quoted(key)}:{_quoted(item)}" for key, item in value.items())


def _outside_quotes(text: str, separator: str) -> list[str]:
    parts = re.findall(rf"""((?:'(?:[^']|'')*'|"(?:[^"]|"")*"|[^{separator}'"])+)""", text)
    return [part.strip() for part in parts if part.strip()]


def _unquoted(text: str) -> str:
    quote = text[:1]
    return text[1:-1].replace(quote * 2, quote) if quote in ("'", '"') and len(text) > 1 else text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if re.search("[,:'\"]", text) else text


class Hexadecimal(OptionType[bytes]):
    """Bytes, two digits each."""

    def allowed(self) -> str:
        return "bytes written as hexadecimal digits"

    def parse(self, text: str) -> bytes:
        return bytes.fromhex(text)


INTEGER: Final = Whole()
FLOAT: Final = Number()
BOOLEAN: Final = Boolean()
TEXT: Final = Text()
HEXADECIMAL: Final = Hexadecimal()
