"""Commands that watch and steer jobs: list, info, savepoint, stop, cancel, rescale, checkpoints, state, log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import hint, moment, print_json, print_table, size, span, wait_for_operation, wait_for_state
from penstock.cli.targets import AsJson, Directory, JobManager, JobName, Token, all_targets, checked, find
from penstock.jobmanager.documents import checkpoints as checkpoint_documents
from penstock.jobmanager.documents import jobs as documents
from penstock.jobmanager.known_job import TERMINAL
from penstock.jobmanager.rates import bottleneck

Wait = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the end of it.")]
SavepointDirectory = Annotated[
    str | None,
    typer.Argument(metavar="[DIRECTORY]", help="Where to put it; default: as configured, or the job folder."),
]


def add_to(app: typer.Typer) -> None:
    app.command("list")(list_jobs)
    for command in (info, savepoint, stop, cancel, rescale, checkpoints, state, log):
        app.command()(command)


def list_jobs(
    directory: Directory = None, jobmanager: JobManager = None, token: Token = None, as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", "-a", help="Jobs that have ended, too.")] = False,
) -> None:  # fmt: skip
    """List jobs, the newest first."""
    found = [target.facts() for target in all_targets(directory, jobmanager, token)]
    shown = [facts for facts in found if every or facts["state"] not in TERMINAL]
    if as_json:
        print_json([documents.overview(facts) for facts in shown])
        return
    rows = [
        (f["job_id"][:12], f["name"], f["state"], moment(f["start_ms"]), span(documents.times(f)["duration"]),
         f["slots"], f"{f['totals']['records_in']:,}", f["checkpoints"]["counts"]["completed"])
        for f in shown
    ]  # fmt: skip
    if rows:
        print_table(("job", "name", "state", "started", ">for", ">slots", ">records in", ">checkpoints"), rows)
        hint(f"penstock info {shown[0]['job_id'][:8]}")
    else:
        hidden = len(found) - len(shown)
        typer.echo(f"No job runs.{f' Ended: {hidden}.' if hidden else ''}")
        hint("penstock list --all" if hidden else "penstock run job.py")


def info(
    job: JobName,
    directory: Directory = None,
    jobmanager: JobManager = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show a job: its vertices with rates and watermarks, its last checkpoint, its last exception."""
    target = find(job, directory, jobmanager, token)
    facts = target.facts()
    slow = bottleneck(facts)
    if as_json:
        print_json(documents.details(facts, slow))
        return
    typer.echo(
        f"{facts['name']}  {facts['job_id']}  {facts['state']}\n"
        f"started {moment(facts['start_ms'])}, {span(documents.times(facts)['duration'])}, {facts['runtime']}, "
        f"{facts['slots']} slots, {facts['totals']['epochs']} epochs, {facts['totals']['records_in']:,} records in, "
        f"{facts['totals']['records_out']:,} out\n"
    )
    rows = []
    for vertex in facts["vertices"]:
        summary = documents.vertex_summary(facts, vertex)
        rates = summary["rates"]
        mark = summary["watermark"]
        rows.append(
            (vertex["name"], vertex["parallelism"], f"{rates['records-in-per-second']:,.0f}",
             f"{rates['records-out-per-second']:,.0f}", f"{rates['busy']:.0%}", f"{rates['back-pressured']:.0%}",
             moment(mark) if mark is not None and abs(mark) < 2**53 else "–",
             "← slowest" if vertex["key"] == slow else "")
        )  # fmt: skip
    print_table(("vertex", ">×", ">in/s", ">out/s", ">busy", ">back pressure", "watermark", ""), rows)
    if facts["checkpoints"]["history"]:
        last = facts["checkpoints"]["history"][-1]
        typer.echo(f"\nlast checkpoint {last['id']}: {size(last['bytes'])} in {last['duration_ms']:.0f} ms")
    if facts["exceptions"]:
        last = facts["exceptions"][-1]
        typer.echo(f"\nlast exception, {moment(last['at_ms'])}: {last['message']}")
    short = facts["job_id"][:8]
    if facts["state"] in TERMINAL:
        hint(f"penstock log {short}", f"penstock checkpoints {short}")
    else:
        hint(f"penstock savepoint {short}", f"penstock stop {short}", f"penstock rescale {short} N")


def savepoint(
    job: JobName, target_directory: SavepointDirectory = None, directory: Directory = None,
    jobmanager: JobManager = None, token: Token = None, as_json: AsJson = False, timeout: Wait = 600.0,
) -> None:  # fmt: skip
    """Take a savepoint; the job goes on."""
    target = find(job, directory, jobmanager, token)
    body = {"target-directory": _absolute(target_directory)}
    answer = checked(target.ask("POST", f"/jobs/{target.job_id}/savepoints", {}, body))
    location = wait_for_operation(target, "savepoint", "savepoints", answer["request-id"], timeout)
    _made(location, as_json)


def stop(
    job: JobName, target_directory: SavepointDirectory = None,
    drain: Annotated[bool, typer.Option("--drain", help="Let event time end first: every window fires.")] = False,
    directory: Directory = None, jobmanager: JobManager = None, token: Token = None, as_json: AsJson = False,
    timeout: Wait = 600.0,
) -> None:  # fmt: skip
    """End a job with a savepoint, to be resumed from it."""
    target = find(job, directory, jobmanager, token)
    body = {"drain": drain, "targetDirectory": _absolute(target_directory)}
    answer = checked(target.ask("POST", f"/jobs/{target.job_id}/stop", {}, body))
    location = wait_for_operation(target, "stop with savepoint", "savepoints", answer["request-id"], timeout)
    wait_for_state(target, "the job ends", TERMINAL, timeout)
    _made(location, as_json)


def _absolute(folder: str | None) -> str | None:
    """A relative path is relative to where the command was typed, not to where the driver runs."""
    return folder if folder is None or "://" in folder else str(Path(folder).absolute())


def _made(location: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"location": location})
    else:
        typer.echo(location)
        hint(f"penstock run --from-savepoint {location} job.py")


def cancel(
    job: JobName, directory: Directory = None, jobmanager: JobManager = None, token: Token = None,
    as_json: AsJson = False, timeout: Wait = 120.0,
) -> None:  # fmt: skip
    """End a job without a savepoint. Its last checkpoint stays."""
    target = find(job, directory, jobmanager, token)
    checked(target.ask("PATCH", f"/jobs/{target.job_id}", {"mode": "cancel"}, {}))
    facts = wait_for_state(target, "the job ends", TERMINAL, timeout)
    if as_json:
        print_json({"id": target.job_id, "status": facts["state"]})
    else:
        typer.echo(f"{facts['name']}  {target.job_id}  {facts['state']}")
        hint(f"penstock info {target.job_id[:8]}")


def rescale(
    job: JobName, parallelism: Annotated[int, typer.Argument(min=1, max=32768)], directory: Directory = None,
    jobmanager: JobManager = None, token: Token = None, as_json: AsJson = False, timeout: Wait = 600.0,
) -> None:  # fmt: skip
    """Change a running job's parallelism."""
    target = find(job, directory, jobmanager, token)
    query = {"parallelism": str(parallelism)}
    answer = checked(target.ask("PATCH", f"/jobs/{target.job_id}/rescaling", query, {}))
    wait_for_operation(target, f"rescale to {parallelism}", "rescaling", answer["request-id"], timeout)
    if as_json:
        print_json({"id": target.job_id, "parallelism": parallelism})
    else:
        typer.echo(f"{target.job_id} runs with parallelism {parallelism}")
        hint(f"penstock info {target.job_id[:8]}")


def checkpoints(
    job: JobName,
    directory: Directory = None,
    jobmanager: JobManager = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Show a job's checkpoints and savepoints, the newest first."""
    target = find(job, directory, jobmanager, token)
    statistics = checkpoint_documents.statistics(target.facts())
    if as_json:
        print_json(statistics)
        return
    counts = statistics["counts"]
    rows = [
        (entry["id"], entry["checkpoint_type"].lower(), moment(entry["trigger_timestamp"]),
         f"{entry['end_to_end_duration']:.0f} ms", size(entry["checkpointed_size"]), entry["external_path"] or "–")
        for entry in statistics["history"]
    ]  # fmt: skip
    print_table(("id", "kind", "started", ">duration", ">size", "path"), rows)
    typer.echo(f"\n{counts['completed']} completed, {counts['failed']} failed, {counts['restored']} restored from")
    newest = next((e["external_path"] for e in statistics["history"] if e["external_path"]), None)
    if newest:
        hint(f"penstock run --from-savepoint {newest} job.py")


def state(
    job: JobName,
    uid: Annotated[str, typer.Argument(help="The operator's uid.")],
    name: Annotated[str, typer.Argument(help="The state's name, as in its descriptor.")],
    key: Annotated[str, typer.Argument(help='The key as JSON: 17, \'"user-1"\', \'[1, "a"]\' for a tuple.')],
    directory: Directory = None, jobmanager: JobManager = None, token: Token = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show what a running job keeps for one key."""
    target = find(job, directory, jobmanager, token)
    answer = checked(target.ask("GET", f"/jobs/{target.job_id}/state", {"uid": uid, "name": name, "key": key}, {}))
    if as_json:
        print_json(answer)
    else:
        typer.echo(answer["text"])


def log(
    job: JobName, directory: Directory = None, jobmanager: JobManager = None, token: Token = None,
    last: Annotated[int, typer.Option("--bytes", min=1, max=16 << 20, help="How much of its end.")] = 65536,
) -> None:  # fmt: skip
    """Show the end of what a job's driver printed."""
    typer.echo(find(job, directory, jobmanager, token).log(last), nl=False)
