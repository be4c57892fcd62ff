"""Where the subtasks of a job spend their time: the stacks of their threads, looked at many times a second.

A thread that runs a subtask is recognised by its stack, so nothing has to be noted while records are processed and sampling
costs nothing while nobody asks for it. C functions have no frame of their own and count for who calls them.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Literal

import penstock
from penstock.engine import task as subtask_module
from penstock.engine.task import Task

Origin = Literal["job", "engine", "library"]

EVERY_S: Final = 0.01
_DEEPEST: Final = 120  # frames, from the subtask on
_ENGINE: Final = str(Path(penstock.__file__).parent)
_LIBRARY: Final = (*{sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}, "<frozen")
_TASK: Final = subtask_module.__file__


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code that runs, or has called the next place: `function` is module.qualified_name:line."""

    function: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Sample:
    """The place where a subtask was at one moment."""

    vertex: int
    subtask: int
    on_cpu: bool  # False: it waits, for the network, a disk, a lock
    stack: tuple[Place, ...]  # outermost first


def take_samples(job_id: str, *, seconds: float, every_s: float = EVERY_S) -> Counter[Sample]:
    """Samples all threads of this process that run subtasks of the job. Blocks for `seconds`."""
    found: Counter[Sample] = Counter()
    clock = _CpuClock()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(every_s)
        native = {thread.ident: thread.native_id for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            subtask, stack = _look(frame)
            if subtask is not None and subtask.settings.job_id == job_id:
                on_cpu = clock.ran(native.get(ident))
                found[Sample(int(subtask.task.vertex), subtask.task.subtask, on_cpu, stack)] += 1
        del frame  # or it, and all that its thread has on its stack, would live until the next look
    return found


def _look(leaf: FrameType) -> tuple[Task | None, tuple[Place, ...]]:
    """The subtask that a thread runs, if any, and the stack from its outermost frame on."""
    subtask, frames, first = None, list[FrameType](), 0
    frame: FrameType | None = leaf
    while frame is not None:
        frames.append(frame)
        if frame.f_code.co_filename == _TASK and isinstance(found := frame.f_locals.get("self"), Task):
            subtask, first = found, len(frames)
        frame = frame.f_back
    if subtask is None:
        return None, ()
    return subtask, tuple(_place(f) for f in frames[max(0, first - _DEEPEST) : first][::-1])


def _place(frame: FrameType) -> Place:
    code = frame.f_code
    module = frame.f_globals.get("__name__", "?")
    if code.co_filename.startswith(_ENGINE):
        origin: Origin = "engine"
    elif "site-packages" in code.co_filename or code.co_filename.startswith(_LIBRARY):
        origin = "library"
    else:
        origin = "job"
    return Place(f"{module}.{code.co_qualname}:{frame.f_lineno}", origin)


class _CpuClock:
    """Whether a thread had a processor since the last look. Where the system does not tell (Linux does), it had."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int]] = {}

    def ran(self, native_id: int | None) -> bool:
        if native_id is None:
            return True
        try:
            with open(f"/proc/self/task/{native_id}/schedstat", "rb") as file:
                spent_ns = int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return True
        now = time.monotonic()
        before = self._last.get(native_id)
        self._last[native_id] = (now, spent_ns)
        return before is None or (spent_ns - before[1]) / 1e9 >= (now - before[0]) / 2
