"""When files of `FileSink` end: the policies, and the pure function that says which staged files make a file now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.errors import ConfigurationError

PART_SIZE = 128 * 1024 * 1024
SMALL = 16 * 1024 * 1024  # what a checkpoint brings is joined up to here: more is not worth passing through the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A committable: a durable file that waits for its place. Paths are relative to the sink's folder."""

    job_id: str
    epoch: int
    staged: str
    final: str
    rows: int
    size: int
    subtask: int = 0
    created: int = 0  # the processing time of its epoch
    waited: int = 0  # commits since it was staged

    @property
    def bucket(self) -> str:
        """The folder that it goes to."""
        return self.final.rpartition("/")[0]

    def __setstate__(self, state: list[Any]) -> None:  # manifests of before have no `subtask` and what follows
        for name, value in zip(self.__slots__, [*state, *(0, 0, 0)[len(state) - 6 :]], strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRule:
    """A file ends when one of these is reached. With `across_subtasks`, files of all subtasks are joined."""

    size: int | None = None
    age_ms: int | None = None
    idle_ms: int | None = None
    checkpoints: int | None = None
    across_subtasks: bool = False


class RollingPolicy:
    """Says when a file of `FileSink` ends: by size and time, or at every checkpoint."""

    rule: RollRule

    @staticmethod
    def default_rolling_policy(
        part_size: int = PART_SIZE, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> DefaultRollingPolicy:
        """PyFlink's name. A file ends when it has `part_size` bytes, is `rollover_interval` ms old, or got nothing for
        `inactivity_interval` ms; looked at when a checkpoint completes."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """PyFlink's name. Files end with every checkpoint."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Files end by size, age or silence; what is not there yet stays hidden over checkpoints and crashes."""

    def __init__(self, part_size: int, rollover_interval: int, inactivity_interval: int) -> None:
        if part_size <= 0 or rollover_interval <= 0 or inactivity_interval <= 0:
            raise ConfigurationError("RollingPolicy: part_size and the intervals must be more than 0")
        self.rule = RollRule(size=part_size, age_ms=rollover_interval, idle_ms=inactivity_interval)


class OnCheckpointRollingPolicy(RollingPolicy):
    """A checkpoint shows all that was written before it. Small files that a subtask wrote for its epochs become one."""

    rule = RollRule(size=SMALL, checkpoints=1)


class FileCompactStrategy:
    """Says when the files of all subtasks in a folder are joined before they are shown.

    Example:

        strategy = FileCompactStrategy.builder().set_size_threshold(64 * 1024 * 1024).enable_compaction_on_checkpoint(5).build()
    """

    def __init__(self, rule: RollRule) -> None:
        self.rule = rule

    @staticmethod
    def builder() -> FileCompactStrategyBuilder:
        """A builder; it needs a size, a number of checkpoints, or both."""
        return FileCompactStrategyBuilder()


class FileCompactStrategyBuilder:
    """Builds a FileCompactStrategy."""

    def __init__(self) -> None:
        self._rule = RollRule(across_subtasks=True)

    def enable_compaction_on_checkpoint(self, num_checkpoints_before_compaction: int) -> Self:
        """Joins what there is after so many checkpoints at the latest."""
        if num_checkpoints_before_compaction < 1:
            raise ConfigurationError("FileCompactStrategy: the number of checkpoints must be 1 or more")
        self._rule = replace(self._rule, checkpoints=num_checkpoints_before_compaction)
        return self

    def set_size_threshold(self, size_threshold: int) -> Self:
        """Joins as soon as the files have so many bytes together."""
        self._rule = replace(self._rule, size=size_threshold if size_threshold > 0 else None)
        return self

    def set_num_compact_threads(self, num_compact_threads: int) -> Self:
        """Checked and else without effect: files are joined beside the next epoch, one after the other."""
        if num_compact_threads < 1:
            raise ConfigurationError("FileCompactStrategy: the number of threads must be 1 or more")
        return self

    def build(self) -> FileCompactStrategy:
        """The strategy."""
        if self._rule.size is None and self._rule.checkpoints is None:
            raise ConfigurationError(
                "FileCompactStrategy: say when: set_size_threshold(bytes), enable_compaction_on_checkpoint(n), or both"
            )
        return FileCompactStrategy(self._rule)


class FileCompactor:
    """Says how files are joined. The sink's format knows that itself; only bytes between two files can be added."""

    def __init__(self, delimiter: bytes = b"") -> None:
        self.delimiter = delimiter

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """PyFlink's name: one file after the other, with these bytes between them. Parquet and CSV are joined row by row and take
        no delimiter."""
        return FileCompactor(file_delimiter or b"")


def due(
    files: Iterable[StagedFile], rule: RollRule, now: int, *, ended: bool
) -> tuple[list[list[StagedFile]], list[StagedFile]]:
    """Groups of staged files that each make a file now, and those that wait. The order of a subtask's files is kept."""
    lanes: dict[tuple[str, int], list[StagedFile]] = {}
    for file in files:
        lanes.setdefault((file.bucket, -1 if rule.across_subtasks else file.subtask), []).append(file)
    groups: list[list[StagedFile]] = []
    waiting: list[StagedFile] = []
    for lane in lanes.values():
        rest: list[StagedFile] = []
        for file in lane:
            rest.append(file)
            if rule.size is not None and sum(part.size for part in rest) >= rule.size:
                groups.append(rest)
                rest = []
        if rest and (ended or _time_is_up(rest, rule, now)):
            groups.append(rest)
        else:
            waiting += rest
    return groups, waiting


def _time_is_up(files: list[StagedFile], rule: RollRule, now: int) -> bool:
    first, last = min(file.created for file in files), max(file.created for file in files)
    return (
        (rule.age_ms is not None and now - first >= rule.age_ms)
        or (rule.idle_ms is not None and now - last >= rule.idle_ms)
        or (rule.checkpoints is not None and max(file.waited for file in files) + 1 >= rule.checkpoints)
    )
