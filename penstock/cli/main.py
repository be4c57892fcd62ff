"""The `penstock` command: one module for each group of subcommands, put together here."""

from __future__ import annotations

import sys
import traceback

import typer

from penstock.cli import jobmanager, jobs, run, state
from penstock.errors import PenstockError
from penstock.runtime.console import report, verbose
from penstock.service.program import ProgramError, run_program

app = typer.Typer(
    name="penstock",
    help="Flink's DataStream model in Python, on Spark: run jobs, watch them, steer them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a user's traceback is shown as Python shows it
    rich_markup_mode=None,
)
for group in (run, jobs, state, jobmanager):
    group.add_to(app)


def main() -> None:
    """Entry point of the console script. Errors that Penstock raises on purpose are shown without a traceback."""
    try:
        app(prog_name="penstock")  # also when it is `python -m penstock.cli`
    except PenstockError as error:
        if verbose():
            traceback.print_exception(error)
        else:
            typer.echo(_told(error), err=True)
        sys.exit(1)
    except ProgramError as failed:
        if verbose() or not isinstance(failed.error, PenstockError):
            traceback.print_exception(failed.error)
        else:
            typer.echo(report(failed.error), err=True)
        sys.exit(1)
    except OSError as error:  # not the program's: a disk that is full, a folder that is somebody else's
        where = "" if error.filename is None else f": {error.filename}"
        typer.echo(f"{error.strerror or error}{where}\n--dir or PENSTOCK_HOME names another home folder.", err=True)
        sys.exit(1)


def _told(error: PenstockError) -> str:
    """What the command itself refuses is one sentence; what came from the program has the program's part of the traceback."""
    where = error.__traceback__
    while where is not None and where.tb_frame.f_code is not run_program.__code__:
        where = where.tb_next
    return f"{type(error).__name__}: {error}" if where is None else report(error.with_traceback(where))
