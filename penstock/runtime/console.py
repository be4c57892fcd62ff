"""What a person at a terminal sees of a job that starts, fails or is interrupted: few words, and none of the JVM's.

`PENSTOCK_VERBOSE=1` (`penstock run -v`) shows everything: all tracebacks, and what the JVM says. What is said while Spark starts
is in `penstock.common.terminal`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from penstock.common.terminal import end_line
from penstock.errors import JobFailedError, PenstockError, UserFunctionError, user_frames

VERBOSE: Final = "PENSTOCK_VERBOSE"
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# Said before any log is set up, by the JVM (Spark asks for a module that is still incubating) and by Spark in words of its own.
_BANNER: Final = (b"WARNING: Using incubator modules", b"Setting default log level to", b"To adjust logging level use")
_MORE: Final = f"All tracebacks: penstock run -v, or {VERBOSE}=1"

_T = TypeVar("_T")


def verbose() -> bool:
    """Whether everything is to be shown."""
    return os.environ.get(VERBOSE, "") not in ("", "0")


# ---------------------------------------------------------------- errors


def report(error: BaseException) -> str:
    """An error for a person: the user's own exception with its place first, then what it was part of."""
    told_whole = isinstance(error, JobFailedError | UserFunctionError)
    lines = [str(error)] if told_whole else [f"{type(error).__name__}: {error}", *user_frames(error)]
    return "\n".join([*lines, _MORE])


def install(interrupted: Callable[[], list[str]]) -> None:
    """From now on an error of Penstock's that nobody catches is shown by `report`, and Ctrl-C by what `interrupted` says. A
    program or a notebook that shows errors in a way of its own keeps it."""
    if sys.excepthook is not sys.__excepthook__:
        return

    def show(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        end_line()
        if verbose() or not isinstance(error, PenstockError | KeyboardInterrupt):
            sys.__excepthook__(kind, error, where)
        elif isinstance(error, KeyboardInterrupt):
            after_echo = "\n" if sys.stderr.isatty() else ""  # of ^C
            print(after_echo + "\n".join(interrupted() or ["interrupted"]), file=sys.stderr)
        else:
            print(report(error), file=sys.stderr)

    sys.excepthook = show


# ---------------------------------------------------------------- the JVM


def quiet_log(settings: Mapping[str, str], level: str) -> dict[str, str]:
    """The settings with a log of the JVM's at this level from its first word on. Errors of tasks are not in it unless more than
    errors is asked for: the job tells them itself. A log that the user has set up is left alone."""
    options = settings.get(_JAVA_OPTIONS, "")
    configured = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", "."), "conf")
    if verbose() or "log4j" in options or os.path.exists(os.path.join(configured, "log4j2.properties")):
        return dict(settings)
    tasks = "OFF" if level in ("ERROR", "FATAL", "OFF") else level
    ours = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()} -Dpenstock.level={level} -Dpenstock.tasks={tasks}"
    return {**settings, _JAVA_OPTIONS: f"{options} {ours}".strip()}


def quiet_py4j() -> None:
    """Py4J logs every connection that closes, also when a program is interrupted. Who set its level keeps it."""
    logger = logging.getLogger("py4j")
    if logger.level == logging.NOTSET and not verbose():
        logger.setLevel(logging.CRITICAL)


@contextmanager
def without_banner() -> Iterator[None]:
    """What is started inside writes its stderr through here, for as long as it lives: all but the JVM's banner is passed on."""
    if verbose():
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        threading.Thread(target=_pass_on, args=(reading, ours), name="penstock-jvm-stderr", daemon=True).start()


def _pass_on(reading: int, to: int) -> None:
    with os.fdopen(reading, "rb") as lines, os.fdopen(to, "wb", buffering=0) as target:
        for line in lines:
            if not line.startswith(_BANNER):
                target.write(line)
