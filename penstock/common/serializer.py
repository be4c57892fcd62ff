"""Serializers a user or a window assigner supplies: one element to bytes and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, Generic, TypeVar

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Stateless; two of one class with equal attributes are equal."""

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write `element`; what is written must be self-delimiting."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read exactly what `serialize` wrote."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
