"""`penstock state`: which states a job has, entries of one, what one key has."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.output import hint, print_json, print_table
from penstock.cli.targets import AsJson, Target, checked, on_job

_KEY = "As JSON: 17, '\"user-1\"', '[1, \"a\"]' for a tuple; default: some of all keys."


def add_to(app: typer.Typer) -> None:
    """Adds the command of this module."""
    app.command()(on_job(state))


def state(
    target: Target,
    uid: Annotated[str | None, typer.Argument(metavar="[UID]", help="The operator's uid; default: all.")] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The state's name, as in its descriptor.")
    ] = None,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help=_KEY)] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="What the engine keeps for itself, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a job keeps. As of its newest checkpoint: its states, entries of one, or what one key has."""
    if uid is None or name is None:
        _states(target, uid, as_json, every=every)
    elif key is None:
        _entries(target, uid, name, as_json)
    else:
        _value(target, uid, name, key, as_json)


def _states(target: Target, uid: str | None, as_json: bool, *, every: bool) -> None:
    answer = checked(target.ask("GET", f"/jobs/{target.job_id}/states", {}, {}))
    if as_json:
        print_json(answer)
        return
    fitting = [each for each in answer["states"] if uid in (None, each["uid"])]
    found = [each for each in fitting if every or not each.get("internal")]
    if not found:
        typer.echo(f"No checkpoint has state{'' if uid is None else f' of an operator with uid {uid!r}'} (yet).")
        hint(f"penstock state --all {target.job_id[:8]}" if fitting else f"penstock checkpoints {target.job_id[:8]}")
        return
    print_table(("~uid", "~name", "kind"), [(each["uid"], each["name"], each["kind"]) for each in found])
    hint(f"penstock state {target.job_id[:8]} {found[0]['uid']} {found[0]['name']}")


def _entries(target: Target, uid: str, name: str, as_json: bool) -> None:
    answer = checked(target.ask("GET", f"/jobs/{target.job_id}/state", {"uid": uid, "name": name}, {}))
    if as_json:
        print_json(answer)
        return
    rows = [(each["key"], each["namespace"] or "", each["text"]) for each in answer["entries"]]
    if all(window == "" for _, window, _ in rows):
        print_table(("~key", "~value"), [(key, value) for key, _, value in rows])
    else:
        print_table(("~key", "~window", "~value"), rows)
    if answer["more"]:
        typer.echo("…")
    if any(each["shortened"] for each in answer["entries"]):
        typer.echo("What ends with … is only the beginning: KEY shows more of it.", err=True)
    hint(f"penstock state {target.job_id[:8]} {uid} {name} KEY")


def _value(target: Target, uid: str, name: str, key: str, as_json: bool) -> None:
    query = {"uid": uid, "name": name, "key": key}
    answer = checked(target.ask("GET", f"/jobs/{target.job_id}/state", query, {}))
    if as_json:
        print_json(answer)
        return
    typer.echo(answer["text"])
    if answer["shortened"]:
        typer.echo("Only its beginning is shown.", err=True)
    if answer["text"] == "None":  # nothing is kept for the key, or there is no such state
        hint(f"penstock state {target.job_id[:8]}")
