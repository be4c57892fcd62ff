"""`penstock run`: a program, unchanged, with configuration from the command line.

Starting a job that outlives the command: here, or at a dispatcher.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.output import hint, wait_for_state
from penstock.cli.targets import (
    Directory,
    JobManager,
    LocalTarget,
    RemoteTarget,
    Target,
    TokenFile,
    checked,
    dispatcher_at,
    home_at,
)
from penstock.common.configuration import GlobalConfiguration
from penstock.common.implementations import RUNTIMES
from penstock.common.known_keys import check, perhaps
from penstock.common.options import CheckpointingOptions, ControlOptions, JobOptions
from penstock.driver.control.home import JobHome, is_running, read_json
from penstock.errors import ConfigurationError, JobFailedError
from penstock.runtime.console import VERBOSE
from penstock.service.endpoint import Endpoint
from penstock.service.known_jobs import TERMINAL, KnownJob, prune_unattended
from penstock.service.program import UserProgram, run_program
from penstock.service.submission import Submission, start_driver

_START_S = 120.0
_STARTED = ("RUNNING", *TERMINAL)


def start_detached(home: JobHome, program: UserProgram, configuration: Mapping[str, str], runtime: str | None) -> None:
    """The driver is a process of its own. If a dispatcher runs on the same home, it looks after the job from now on."""
    if not program.is_module and not Path(program.entry).is_file():
        raise ConfigurationError(f"there is no program {program.entry}")
    dispatcher = read_json(home.root / "dispatcher.json")
    submission = Submission(
        program=program,
        configuration=dict(configuration),
        runtime=runtime,
        folder=os.getcwd(),
        supervised=dispatcher is not None and is_running(dispatcher),
    )
    prune_unattended(home.create())
    started = start_driver(home, submission)
    _report(LocalTarget(KnownJob(home.job(started.job_id))), wait=False)


def submit_remotely(
    endpoint: Endpoint, program: UserProgram, configuration: Mapping[str, str], runtime: str | None, *, wait: bool
) -> None:
    """Programs and --py-files are uploaded; a module must be on the dispatcher's machine."""
    request: dict[str, Any] = {
        "programArgsList": list(program.arguments),
        "flinkConfiguration": {k: v for k, v in configuration.items() if k != JobOptions.PYTHON_FILES.key},
        "pyflink": program.pyflink,
        "runtime": runtime,
    }
    if program.is_module:
        request |= {"entry": program.entry, "module": True, "pyFiles": list(program.py_files)}
        answer = checked(endpoint.ask("POST", "/jobs", body=request))
    else:
        request["pyFiles"] = [_upload(endpoint, file) for file in program.py_files]
        answer = checked(endpoint.ask("POST", f"/programs/{_upload(endpoint, program.entry)}/run", body=request))
    _report(RemoteTarget(endpoint, answer["jobid"]), wait=wait)


def _upload(endpoint: Endpoint, file: str) -> str:
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"{file} is not a file: to be uploaded, a folder has to be a zip file")
    answer = checked(endpoint.ask("POST", "/programs/upload", {"name": upload_name(path)}, raw=path.read_bytes()))
    return str(answer["filename"])


def upload_name(path: Path) -> str:
    """What a program is called at a dispatcher, which takes no other characters. A module that is imported has such a name."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name)[-96:].lstrip(".-")
    return plain if path.suffix in (".py", ".zip") and plain else f"{plain or 'program'}.py"


def _report(target: Target, *, wait: bool) -> None:
    typer.echo(target.job_id)
    short = target.job_id[:8]
    if wait:
        hint(f"penstock info {short}", f"penstock stop {short}")
    facts = wait_for_state(target, "the job runs" if wait else "the job starts", TERMINAL if wait else _STARTED,
                           math.inf if wait else _START_S)  # fmt: skip
    if facts["state"] == "FAILED":
        last = facts["exceptions"][-1]["message"] if facts["exceptions"] else "no exception was recorded"
        hint(f"penstock log {short}")
        raise JobFailedError(f"job {target.job_id} failed: {last}")
    if facts["state"] in TERMINAL:
        typer.echo(f"It is {facts['state']}.", err=True)
        hint(f"penstock info {short}", f"penstock log {short}")
    else:
        hint(f"penstock info {short}", f"penstock log {short}", f"penstock stop {short}")


def _runtime(text: str) -> str:
    try:
        return RUNTIMES.parse(text)
    except ValueError:
        meant = difflib.get_close_matches(text.lower(), RUNTIMES.names, 1)
        suggested = f": did you mean {meant[0]!r}?" if meant else ""
        raise typer.BadParameter(f"{text!r} is not {RUNTIMES.allowed()}{suggested}") from None


def add_to(app: typer.Typer) -> None:
    """Adds the command of this module."""
    # Everything after the program belongs to the program, options included.
    app.command("run", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})(run)


def run(
    job: Annotated[str, typer.Argument(help="The program: a Python file, or with -m a module.", metavar="JOB")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own arguments.", metavar="ARGS")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="JOB is the dotted name of a module.")] = False,
    pyflink: Annotated[
        bool, typer.Option("--pyflink", help="`import pyflink` means Penstock: a PyFlink program runs as it is.")
    ] = False,
    runtime: Annotated[
        str | None,
        typer.Option(
            parser=_runtime,
            metavar="|".join(RUNTIMES.names),
            help="Goes over what the program says; spark is the default.",
        ),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master: local[4], spark://host:7077, yarn, …")] = None,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", "-p", min=1, help="Parallelism where the program sets none.")
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option(
            "-D", metavar="KEY=VALUE", help="A configuration key, below what the program sets. May be repeated."
        ),
    ] = None,
    from_savepoint: Annotated[
        str | None,
        typer.Option("--from-savepoint", "-s", metavar="PATH", help="Start from this savepoint or checkpoint."),
    ] = None,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option("--allow-non-restored-state", "-n", help="Drop state of operators the program no longer has."),
    ] = False,
    claim: Annotated[
        bool,
        typer.Option("--claim", help="The job owns the savepoint from now on and deletes it when it needs it no more."),
    ] = False,
    py_files: Annotated[
        list[str] | None,
        typer.Option(
            "--py-files",
            metavar="FILE,…",
            help="Modules, folders and zip files the program needs, here and on workers.",
        ),
    ] = None,
    archives: Annotated[
        list[str] | None, typer.Option("--archives", metavar="FILE,…", help="Archives that Spark unpacks on workers.")
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Start the job in a process of its own, print its id, and end.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all tracebacks, and what Spark's JVM says.")
    ] = False,
    directory: Directory = None,
    jobmanager: JobManager = None,
    token_file: TokenFile = None,
) -> None:
    """Run a program. Without --detached its jobs run here, and the command ends with them."""
    if verbose:
        os.environ[VERBOSE] = "1"
    files, packed = _split(py_files), _split(archives)
    configuration = _definitions(define)
    if parallelism is not None:
        JobOptions.PARALLELISM.set(configuration, parallelism)
    if master is not None:
        configuration["spark.master"] = master
    if from_savepoint is not None:
        CheckpointingOptions.RECOVERY_PATH.set(configuration, from_savepoint)
        CheckpointingOptions.CLAIM.set(configuration, claim)
    elif claim:
        raise ConfigurationError(
            "--claim says who owns a savepoint after the start: name it with --from-savepoint PATH"
        )
    if allow_non_restored_state:
        CheckpointingOptions.IGNORE_UNCLAIMED.set(configuration, True)
    if files:
        JobOptions.PYTHON_FILES.set(configuration, tuple(files))
    if packed:
        JobOptions.PYTHON_ARCHIVES.set(configuration, tuple(packed))
    program = UserProgram(
        entry=job if module else str(Path(job).absolute()),
        arguments=tuple(arguments or ()),
        is_module=module,
        pyflink=pyflink,
        py_files=tuple(files),
    )
    remote = dispatcher_at(jobmanager, token_file, directory)
    if remote is not None:
        submit_remotely(remote, program, configuration, runtime, wait=not detached)
    elif detached:
        start_detached(home_at(directory), program, configuration, runtime)
    else:
        configuration.update(_managed(home_at(directory)))
        os.environ.update(GlobalConfiguration.to_environment(configuration))
        if runtime is not None:
            os.environ["PENSTOCK_EXECUTION_MODE"] = runtime
        try:
            run_program(program)
        except KeyboardInterrupt:
            _interrupted()
            raise


def _interrupted() -> None:
    """Their driver ends with this process, but not what is known of them."""
    from penstock.runtime.launch import running_jobs

    for client in running_jobs():
        short = str(client.get_job_id())[:8]
        typer.echo(
            f"Job {short} is interrupted: it is SUSPENDED, to be resumed from its last checkpoint, if it has one.",
            err=True,
        )
        hint(f"penstock checkpoints {short}", f"penstock cancel {short}")


def _managed(home: JobHome) -> dict[str, str]:
    """Where this run's jobs can be found. A machine without a writable home folder can still run programs."""
    try:
        prune_unattended(home.create())
        return {ControlOptions.HOME.key: str(home.root)}
    except ConfigurationError as error:
        typer.echo(f"This job cannot be watched: {error}", err=True)
        return {}


def _split(values: list[str] | None) -> list[str]:
    """Options that may be repeated and may hold several paths; relative ones are relative to here."""
    paths = [part for value in values or () for part in value.split(",") if part]
    return [path if "://" in path else str(Path(path).absolute()) for path in paths]


def _definitions(values: list[str] | None) -> dict[str, str]:
    pairs = {}
    for value in values or ():
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(
                f"-D {value!r} should be KEY=VALUE, for example -D {JobOptions.EPOCH_INTERVAL}=100ms"
            )
        pairs[key.strip()] = text.strip()
    check(pairs)
    for key in pairs:
        meant = perhaps(key)
        if meant is not None:
            typer.echo(
                f"{key!r} is nothing that Penstock reads, only the program can: did you mean {meant!r}?", err=True
            )
    return pairs
