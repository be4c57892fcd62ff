"""Commands that are about one job have the same first argument and the same last options: written once, here."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

from penstock.cli.targets import Directory, JobManager, JobName, TokenFile, find


def on_job(command: Callable[..., None]) -> Callable[..., None]:
    """`command(target, …)` as Typer wants it: JOB, what the command declares itself, and how the job is reached."""
    own = list(signature(command, eval_str=True).parameters.values())[1:]
    parameters = [
        Parameter("job", Parameter.KEYWORD_ONLY, annotation=JobName),
        *(parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own),
        Parameter("directory", Parameter.KEYWORD_ONLY, default=None, annotation=Directory),
        Parameter("jobmanager", Parameter.KEYWORD_ONLY, default=None, annotation=JobManager),
        Parameter("token_file", Parameter.KEYWORD_ONLY, default=None, annotation=TokenFile),
    ]

    def run(**given: Any) -> None:
        target = find(given.pop("job"), given.pop("directory"), given.pop("jobmanager"), given.pop("token_file"))
        command(target, **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks at, and so Typer
    return run
