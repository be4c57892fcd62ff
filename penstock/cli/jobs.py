"""Commands that watch and steer jobs: list, info, savepoint, stop, cancel, rescale, checkpoints, log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.output import (
    hint,
    milliseconds,
    moment,
    print_json,
    print_table,
    shortened,
    size,
    span,
    wait_for_operation,
    wait_for_state,
    watermark,
)
from penstock.cli.targets import AsJson, Directory, JobManager, Target, TokenFile, all_targets, checked, on_job
from penstock.driver.control.rates import bottleneck
from penstock.service.documents import checkpoints as checkpoint_documents
from penstock.service.documents import jobs as documents
from penstock.service.known_jobs import TERMINAL

Wait = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the end of it.")]
SavepointDirectory = Annotated[
    str | None,
    typer.Argument(metavar="[DIRECTORY]", help="Where to put it; default: as configured, or the job folder."),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("list")(list_jobs)
    for command in (info, savepoint, stop, cancel, rescale, checkpoints, log):
        app.command()(on_job(command))


def list_jobs(
    directory: Directory = None, jobmanager: JobManager = None, token_file: TokenFile = None, as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", "-a", help="Jobs that have ended, too.")] = False,
) -> None:  # fmt: skip
    """List jobs, the newest first."""
    found = [job for _, job in all_targets(directory, jobmanager, token_file)]
    shown = [job for job in found if every or job["state"] not in TERMINAL]
    if as_json:
        print_json(shown)
        return
    rows = [
        (job["jid"][:8], shortened(job["name"]), job["state"], moment(job["start-time"]), span(job["duration"]),
         job["slots"], f"{job['records-in']:,}")
        for job in shown
    ]  # fmt: skip
    if rows:
        print_table(("job", "~name", "state", "started", ">for", ">slots", ">records in"), rows)
        hint(f"penstock info {shown[0]['jid'][:8]}")
    else:
        hidden = len(found) - len(shown)
        typer.echo(f"No job runs.{f' Ended: {hidden}.' if hidden else ''}")
        hint("penstock list --all" if hidden else "penstock run job.py")


def info(target: Target, as_json: AsJson = False) -> None:
    """Show a job. Its vertices with rates and watermarks, its latency, its last checkpoint, its last exception."""
    facts = target.facts()
    slow = bottleneck(facts)
    if as_json:
        print_json(documents.details(facts, slow))
        return
    how = documents.mode(facts) or facts["runtime"]
    typer.echo(
        f"{facts['name']}  {facts['job_id']}  {facts['state']}\n"
        f"started {moment(facts['start_ms'])}, {span(documents.times(facts)['duration'])}, {how}, "
        f"{_count(facts['slots'], 'slot')}\n{_count(facts['totals']['epochs'], 'epoch')}, "
        f"{facts['totals']['records_in']:,} records in, {facts['totals']['records_out']:,} out\n"
    )
    _print_vertices(facts, slow)
    _print_notices(facts)
    for source in documents.held_back(facts):
        typer.echo(
            f"event time has not begun: {source['name']} has no watermark in {len(source['subtasks'])} of its {source['of']} "
            "subtasks; if there is nothing for them to read, lower its parallelism, or give its strategy with_idleness"
        )
    for pair in documents.latency(facts):
        typer.echo(
            f"latency {pair['source-name']} → {pair['sink-name']}: p50 {milliseconds(pair['p50_ms'])}, "
            f"p99 {milliseconds(pair['p99_ms'])}"
        )
    if facts["checkpoints"]["history"]:
        last = facts["checkpoints"]["history"][-1]
        typer.echo(f"last checkpoint {last['id']}: {size(last['bytes'])} in {milliseconds(last['duration_ms'])}")
    if facts["exceptions"]:
        last = facts["exceptions"][-1]
        typer.echo(f"\nlast exception, {moment(last['at_ms'])}: {last['message']}")
    short = facts["job_id"][:8]
    if facts["state"] in TERMINAL:
        hint(f"penstock log {short}", f"penstock checkpoints {short}")
    else:
        hint(f"penstock savepoint {short}", f"penstock stop {short}", f"penstock rescale {short} N")


def _print_notices(facts: dict[str, Any], *, err: bool = False) -> None:
    """What a person should know of the job now."""
    for notice in facts.get("notices", ()):
        typer.echo(f"warning: {notice['text']}\n", err=err)


def _print_vertices(facts: dict[str, Any], slow: str | None) -> None:
    if not facts["vertices"]:
        over = facts["state"] in TERMINAL
        typer.echo("The program ended without starting a job." if over else "The program has not started its job yet.")
        return
    rows = []
    for vertex in facts["vertices"]:
        summary = documents.vertex_summary(facts, vertex)
        rates = summary["rates"]
        rows.append(
            (vertex["name"] + ("  ← the bottleneck" if vertex["key"] == slow else ""), vertex["parallelism"],
             f"{rates['records-in-per-second']:,.0f}", f"{rates['records-out-per-second']:,.0f}", f"{rates['busy']:.0%}",
             f"{rates['back-pressured']:.0%}", watermark(summary["watermark"]))
        )  # fmt: skip
    print_table(("~vertex", ">×", ">in/s", ">out/s", ">busy", ">pressed", "watermark"), rows)
    typer.echo()


def savepoint(
    target: Target, target_directory: SavepointDirectory = None, as_json: AsJson = False, timeout: Wait = 600.0
) -> None:
    """Take a savepoint; the job goes on."""
    body = {"target-directory": _absolute(target_directory)}
    answer = checked(target.ask("POST", f"/jobs/{target.job_id}/savepoints", {}, body))
    location = wait_for_operation(target, "savepoint", "savepoints", answer["request-id"], timeout)
    _made(target, location, as_json)


def stop(
    target: Target, target_directory: SavepointDirectory = None,
    drain: Annotated[bool, typer.Option("--drain", help="Let event time end first: every window fires.")] = False,
    as_json: AsJson = False, timeout: Wait = 600.0,
) -> None:  # fmt: skip
    """End a job with a savepoint, to be resumed from it."""
    body = {"drain": drain, "targetDirectory": _absolute(target_directory)}
    answer = checked(target.ask("POST", f"/jobs/{target.job_id}/stop", {}, body))
    location = wait_for_operation(target, "stop with savepoint", "savepoints", answer["request-id"], timeout)
    wait_for_state(target, "the job ends", TERMINAL, timeout)
    _made(target, location, as_json)


def _absolute(folder: str | None) -> str | None:
    """A relative path is relative to where the command was typed, not to where the driver runs."""
    return folder if folder is None or "://" in folder else str(Path(folder).absolute())


def _made(target: Target, location: str | None, as_json: bool) -> None:
    if as_json:
        print_json({"location": location})
    else:
        typer.echo(location)
        hint(f"penstock run --from-savepoint {location} {target.program()}")


def cancel(target: Target, as_json: AsJson = False, timeout: Wait = 120.0) -> None:
    """End a job without a savepoint. Its last checkpoint stays."""
    checked(target.ask("PATCH", f"/jobs/{target.job_id}", {"mode": "cancel"}, {}))
    facts = wait_for_state(target, "the job ends", TERMINAL, timeout)
    if as_json:
        print_json({"id": target.job_id, "status": facts["state"]})
    else:
        typer.echo(f"{facts['name']}  {target.job_id}  {facts['state']}")
        hint(f"penstock info {target.job_id[:8]}")


def rescale(
    target: Target,
    parallelism: Annotated[int, typer.Argument(metavar="PARALLELISM", min=1, max=32768)],
    as_json: AsJson = False,
    timeout: Wait = 600.0,
) -> None:
    """Change a running job's parallelism."""
    query = {"parallelism": str(parallelism)}
    answer = checked(target.ask("PATCH", f"/jobs/{target.job_id}/rescaling", query, {}))
    wait_for_operation(target, f"rescale to {parallelism}", "rescaling", answer["request-id"], timeout)
    if as_json:
        print_json({"id": target.job_id, "parallelism": parallelism})
    else:
        typer.echo(f"{target.job_id} runs with parallelism {parallelism}")
        _print_notices(target.facts(), err=True)
        hint(f"penstock info {target.job_id[:8]}")


def checkpoints(target: Target, as_json: AsJson = False) -> None:
    """Show a job's checkpoints and savepoints, the newest first."""
    facts = target.facts()
    statistics = checkpoint_documents.statistics(facts)
    if as_json:
        print_json(statistics)
        return
    counts, history = statistics["counts"], statistics["history"]
    below = f"{facts['job_folder']}/"
    rows = [
        (entry["id"], _kind(entry), moment(entry["trigger_timestamp"]),
         milliseconds(entry["end_to_end_duration"]), milliseconds(entry["alignment_duration"]), size(entry["checkpointed_size"]),
         (entry["external_path"] or "–").removeprefix(below))
        for entry in history
    ]  # fmt: skip
    if rows:
        print_table(("id", "kind", "started", ">took", ">aligned", ">size", "~path"), rows)
        typer.echo(f"\nPaths are below {below}" if facts["job_folder"] else "")
    typer.echo(f"{counts['completed']} completed, {counts['failed']} failed, {counts['restored']} restored from")
    failed = statistics["latest"]["failed"]
    if failed is not None and failed.get("failure_message"):
        typer.echo(f"the last that failed, {failed['id']}: {failed['failure_message']}")
    newest = next((e["external_path"] for e in history if e["external_path"] and e["status"] == "COMPLETED"), None)
    if newest:
        hint(f"penstock run --from-savepoint {newest} {target.program()}")


def log(
    target: Target,
    last: Annotated[int, typer.Option("--bytes", min=1, max=16 << 20, help="How much of its end.")] = 65536,
) -> None:
    """Show the end of what a job's driver printed."""
    text = target.log(last)
    typer.echo(text, nl=False)
    if not text:
        typer.echo(
            "There is no log: what a program prints that was not started with --detached is on its own terminal.",
            err=True,
        )
        hint(f"penstock info {target.job_id[:8]}")


def _kind(entry: dict[str, Any]) -> str:
    kind, status = str(entry["checkpoint_type"]).lower(), str(entry["status"])
    return kind if status == "COMPLETED" else f"{kind}, {status.lower().replace('_', ' ')}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
