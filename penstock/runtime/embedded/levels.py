"""The exchange of epochs: level after level, as Spark runs them. One attempt of the ordered schedule.

    level 0 of host 0, 1, …  ═ rows by target ═▶  level 1 of host 0, 1, …  ═▶  …  ═▶  acknowledgements

A host runs a level with the `LevelRun` of Spark's slots, and what it makes is kept like shuffle files until the epoch is over.
`Mischief` is what Spark and its hosts may do meanwhile.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import TypeAlias

from penstock.engine.exchange_rows import ACK_LEVEL, EventKind
from penstock.engine.host import TaskHost
from penstock.engine.level_run import LevelRun
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.errors import ProtocolError

Row: TypeAlias = tuple[int, int, int, int, int, int, bytes]  # as `exchange_rows.SCHEMA` has it


class Mischief:
    """What goes wrong in an exchange of epochs, or only differently. This one does nothing of the kind."""

    def mixed(self, rows: list[Row]) -> list[Row]:
        """The rows of a host as they come to it: in order on each channel, the channels mixed."""
        return rows

    def breaks_off(self, level: int, host: int, rows: int) -> int | None:
        """A run whose relay dies when so many rows have come, before the one that counts; None: there is none."""
        return None

    def repeats(self, level: int, host: int) -> bool:
        """Spark runs the task twice (speculation), to the end both times, and takes the later result."""
        return False

    def loses_host(self, level: int, host: int) -> bool:
        """The host's process dies before this level and another takes its place, with nothing in it."""
        return False

    def loses_output(self, runs: int) -> int | None:
        """Shuffle files are lost: the number of the run, of those so far in this epoch, that Spark repeats."""
        return None


class _Rows(list[Row]):
    """An outbox that is never full."""

    def add(self, *row: *Row) -> bool:
        self.append(row)
        return False

    def flush(self) -> None:
        pass


class LevelExchange:
    """`hosts` is the owner's list: a host that is lost is replaced in it."""

    def __init__(
        self,
        hosts: list[TaskHost],
        *,
        version: str,
        acknowledge: Callable[[TaskAck], None],
        new_host: Callable[[int], TaskHost],
        mischief: Mischief | None = None,
    ) -> None:
        self._hosts, self._version, self._acknowledge = hosts, version, acknowledge
        self._new_host, self._mischief = new_host, mischief or Mischief()
        self._attempts = itertools.count()

    def run(self, plan: EpochPlan) -> None:
        """The whole epoch."""
        graph, mischief = self._hosts[0].graph, self._mischief
        waiting: list[Row] = []
        runs: list[tuple[int, int, list[Row], list[Row]]] = []
        for level in range(graph.levels):
            mine: list[list[Row]] = [[] for _ in self._hosts]
            passing: list[Row] = []
            for row in waiting:
                (mine[row[0]] if row[1] == level else passing).append(row)
            for host in range(len(self._hosts)):
                rows = mischief.mixed(mine[host])
                if (broken := mischief.breaks_off(level, host, len(rows))) is not None:
                    self._run(plan, level, host, rows[:broken], finish=False)
                if mischief.loses_host(level, host):
                    self._hosts[host].release()
                    self._hosts[host] = self._new_host(host)
                made = self._run(plan, level, host, rows)
                if mischief.repeats(level, host):
                    made = self._again(plan, level, host, rows, made)
                runs.append((level, host, rows, made))
                passing += made
            waiting = passing
            if (lost := mischief.loses_output(len(runs))) is not None:
                self._again(plan, *runs[lost])
        for row in waiting:
            if row[1] != ACK_LEVEL:
                raise ProtocolError(
                    f"epoch {plan.epoch} ended with a row for level {row[1]}, which the job does not have"
                )
            self._acknowledge(pickle.loads(row[6]))

    def _again(self, plan: EpochPlan, level: int, host: int, rows: list[Row], made: list[Row]) -> list[Row]:
        """A run is repeated when others may have used what it made: it must send the same records and barriers, and say at least
        as much of event time. A task that was restored meanwhile says once more where it stands, which changes nothing."""
        again = self._run(plan, level, host, rows)
        if _records(made) != _records(again) or not _time(made).items() <= _time(again).items():
            raise ProtocolError(
                f"level {level} of host {host}, repeated in epoch {plan.epoch}, did not send the same again"
            )
        return again

    def _run(self, plan: EpochPlan, level: int, host: int, rows: list[Row], *, finish: bool = True) -> list[Row]:
        made = _Rows()
        attempt = f"{plan.epoch}-{self._version}.{next(self._attempts)}"
        run = LevelRun(self._hosts[host], plan, level, attempt, made)
        for _, _, vertex, channel, seq, kind, payload in rows:
            run.receive(vertex, channel, seq, kind, payload)
        if finish:
            run.finish()
        return made


_TIME = (EventKind.WATERMARK, EventKind.IDLE, EventKind.END)


def _records(rows: list[Row]) -> list[tuple[int | bytes, ...]]:
    """Without their numbers, and without acknowledgements, which name their attempt."""
    return [(*row[:4], *row[5:]) for row in rows if row[1] != ACK_LEVEL and row[5] not in _TIME]


def _time(rows: list[Row]) -> dict[tuple[int, ...], bytes]:
    """The last word of each kind on each channel."""
    return {(row[0], row[2], row[3], row[5]): row[6] for row in rows if row[1] != ACK_LEVEL and row[5] in _TIME}
