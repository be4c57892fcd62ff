"""Slot sharing groups: which operators may run in one slot, and what such a slot needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.common.absent import Explaining
from penstock.errors import ConfigurationError

_UNITS: Final = (("tb", 2**40), ("gb", 2**30), ("mb", 2**20), ("kb", 2**10))


@dataclass(frozen=True, slots=True, order=True, repr=False)
class MemorySize(Explaining):
    """An amount of memory in bytes."""

    bytes_size: int

    def __post_init__(self) -> None:
        if self.bytes_size < 0:
            raise ConfigurationError(f"A memory size cannot be negative, but is {self.bytes_size} bytes")

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """A size of this many MiB.

        Example:

            MemorySize.of_mebi_bytes(2).get_bytes()  # gives 2_097_152
        """
        return MemorySize(mebi_bytes * 2**20)

    def get_bytes(self) -> int:
        """The size in bytes.

        Example:

            MemorySize(1024).get_bytes()  # gives 1024
        """
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """The size in KiB, rounded down.

        Example:

            MemorySize(1024).get_kibi_bytes()  # gives 1
        """
        return self.bytes_size // 2**10

    def get_mebi_bytes(self) -> int:
        """The size in MiB, rounded down.

        Example:

            MemorySize.of_mebi_bytes(2).get_mebi_bytes()  # gives 2
        """
        return self.bytes_size // 2**20

    def get_gibi_bytes(self) -> int:
        """The size in GiB, rounded down.

        Example:

            MemorySize.of_mebi_bytes(2048).get_gibi_bytes()  # gives 2
        """
        return self.bytes_size // 2**30

    def get_tebi_bytes(self) -> int:
        """The size in TiB, rounded down.

        Example:

            MemorySize.of_mebi_bytes(2048).get_tebi_bytes()  # gives 0
        """
        return self.bytes_size // 2**40

    def __str__(self) -> str:
        """In the largest unit that loses nothing."""
        for unit, size in _UNITS:
            if self.bytes_size and self.bytes_size % size == 0:
                return f"{self.bytes_size // size}{unit}"
        return f"{self.bytes_size}bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resources:
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external: tuple[tuple[str, float], ...] = field(default=())


class SlotSharingGroup(Explaining):
    """A name and, maybe, the resources of each of its slots. Immutable, equal by value; made by `builder`."""

    __slots__ = ("_name", "_resources")

    def __init__(self, name: str, resources: _Resources | None = None) -> None:
        self._name = name
        self._resources = resources or _Resources()

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Starts a group of this name.

        Example:

            heavy = SlotSharingGroup.builder("heavy").set_cpu_cores(1.0).set_task_heap_memory_mb(100).build()
        """
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """The name that `OperatorSettings.slot_sharing_group` refers to.

        Example:

            SlotSharingGroup.builder("heavy").build().get_name()  # gives "heavy"
        """
        return self._name

    def get_cpu_cores(self) -> float | None:
        """The cores of a slot; None if the group asks for none. Resources are not reserved.

        Example:

            SlotSharingGroup.builder("heavy").set_cpu_cores(1.0).set_task_heap_memory_mb(100).build().get_cpu_cores()  # gives 1.0
        """
        return self._resources.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """The heap memory of a slot; None if the group asks for none.

        Example:

            group = SlotSharingGroup.builder("heavy").set_cpu_cores(1.0).set_task_heap_memory_mb(100).build()
            group.get_task_heap_memory().get_mebi_bytes()  # gives 100
        """
        return self._resources.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """The memory of a slot outside the heap; None if the group asks for none.

        Example:

            SlotSharingGroup.builder("heavy").build().get_task_off_heap_memory()
        """
        return self._resources.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """The managed memory of a slot; None if the group asks for none.

        Example:

            SlotSharingGroup.builder("heavy").build().get_managed_memory()
        """
        return self._resources.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """The amounts of other resources, such as GPUs, by name.

        Example:

            SlotSharingGroup.builder("heavy").build().get_external_resources()  # gives {}
        """
        return dict(self._resources.external)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotSharingGroup) and (self._name, self._resources) == (
            other._name,
            other._resources,
        )

    def __hash__(self) -> int:
        return hash((self._name, self._resources))

    def __repr__(self) -> str:
        return f"SlotSharingGroup({self._name!r}, {self._resources})"

    class Builder:
        """Builds a group. As in Flink, one that sets any resource must set cores and heap memory."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._cpu_cores: float | None = None
            self._memory: dict[str, MemorySize] = {}
            self._external: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """The cores of each slot; more than 0."""
            if cpu_cores <= 0:
                raise ConfigurationError(f"Slot sharing group {self._name!r} cannot have {cpu_cores} CPU cores")
            self._cpu_cores = cpu_cores
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """The heap memory of each slot; more than 0."""
            if task_heap_memory.get_bytes() <= 0:
                raise ConfigurationError(f"Slot sharing group {self._name!r} needs more task heap memory than 0 bytes")
            self._memory["task_heap_memory"] = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """The heap memory of each slot in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """The memory of each slot outside the heap."""
            self._memory["task_off_heap_memory"] = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """The memory of each slot outside the heap in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """The managed memory of each slot."""
            self._memory["managed_memory"] = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """The managed memory of each slot in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """The amount of another resource, such as a GPU, of each slot."""
            self._external[name] = value
            return self

        def build(self) -> SlotSharingGroup:
            """The group; ConfigurationError if it has resources without both cores and heap memory."""
            anything = self._cpu_cores is not None or self._memory or self._external
            if anything and (self._cpu_cores is None or "task_heap_memory" not in self._memory):
                raise ConfigurationError(
                    f"Slot sharing group {self._name!r} sets resources but not both CPU cores and task heap memory: "
                    "set both, or none at all"
                )
            external = tuple(sorted(self._external.items()))
            return SlotSharingGroup(
                self._name, _Resources(cpu_cores=self._cpu_cores, external=external, **self._memory)
            )
