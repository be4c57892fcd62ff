"""Which job a command means, and how it is reached: through its folder on this machine, or through a dispatcher.

Commands that are about one job have the same first argument and the same last options: written once, here.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias
from urllib.parse import urlsplit

import typer

from penstock.driver.control.answers import Answer
from penstock.driver.control.home import JobFolder, JobHome, is_job_id, read_json
from penstock.errors import ConfigurationError, PenstockError
from penstock.service.dispatcher import tail
from penstock.service.documents import jobs as documents
from penstock.service.endpoint import Endpoint
from penstock.service.known_jobs import TERMINAL, KnownJob, known_jobs
from penstock.service.program import run_words
from penstock.service.submission import Submission


def _complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids and names for the shell. Whatever goes wrong, it must not print into a line that is being typed."""
    try:
        named = context.params.get("directory")
        found = [known.facts(live=False) for known in known_jobs(home_at(None if named is None else Path(named)))]
    except Exception:
        return []
    jobs = [facts for facts in found if facts is not None]
    ids = [(f["job_id"][:8], f"{f['name']}, {f['state']}") for f in jobs if f["job_id"].startswith(incomplete)]
    names = dict.fromkeys(f["name"] for f in jobs if f["name"].startswith(incomplete))
    return ids or [(name, "") for name in names]


JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="A job's id or name, the beginning of one, or its job folder.", autocompletion=_complete
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Where jobs are kept and found.", envvar="PENSTOCK_HOME", show_default=False),
]
JobManager = Annotated[
    str | None,
    typer.Option(
        "--jobmanager", metavar="URL", envvar="PENSTOCK_JOBMANAGER", help="Ask this dispatcher instead of folders here."
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(  # no option for the token itself: everybody on a machine sees the arguments of its processes
        "--token-file",
        help="The dispatcher's token is in this file, else in PENSTOCK_TOKEN, else where the dispatcher of the home folder put it.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


_SOME_PROGRAM = "job.py"


class NoSuchJob(PenstockError):
    """The name fits no job, or several."""


class Target(Protocol):
    """One job that commands can be sent to."""

    @property
    def job_id(self) -> str:
        """The id of the job."""

    def facts(self) -> dict[str, Any]:
        """All that is known of the job; NoSuchJob if there is nothing."""

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """Sends a request to the job's driver, in the words of REST."""

    def log(self, size: int) -> str:
        """The last `size` bytes of what the driver printed."""

    def program(self) -> str:
        """The words to type after `penstock run …` to run its program again."""


Listed: TypeAlias = tuple[Target, Mapping[str, Any]]  # a job and its entry in /jobs/overview


class LocalTarget(Target):
    """A job that is reached through its folder on this machine."""

    def __init__(self, known: KnownJob) -> None:
        self._known = known

    @property
    def job_id(self) -> str:
        return self._known.job_id

    def facts(self) -> dict[str, Any]:
        facts = self._known.facts()
        if facts is None:
            raise NoSuchJob(f"job {self.job_id} has told nothing about itself in {self._known.folder.path}")
        return facts

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        return self._known.ask(method, path, query, body)

    def log(self, size: int) -> str:
        return tail(self._known.folder.log, size)

    def program(self) -> str:
        submission = Submission.load(self._known.folder)
        if submission is None:  # it was not submitted: its driver has told how it was started
            return _typed(self.facts().get("program"))
        program = submission.program
        return shlex.join(
            run_words(program.entry, program.arguments, module=program.is_module, pyflink=program.pyflink)
        )


class RemoteTarget(Target):
    """A job that is reached through a job manager's REST."""

    def __init__(self, endpoint: Endpoint, job_id: str) -> None:
        self._endpoint, self._job_id = endpoint, job_id

    @property
    def job_id(self) -> str:
        return self._job_id

    def facts(self) -> dict[str, Any]:
        return checked(self._endpoint.ask("GET", f"/jobs/{self.job_id}/facts"))

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        return self._endpoint.ask(method, path, query, body)

    def log(self, size: int) -> str:
        answer = self._endpoint.ask("GET", f"/jobs/{self.job_id}/log", {"size": str(size)})
        return str(answer.body.get("text", ""))

    def program(self) -> str:
        """An uploaded program is called as at the dispatcher, which does not know from where it came."""
        asked = checked(self._endpoint.ask("GET", f"/jobs/{self.job_id}"))["submitted"]
        if asked is None:
            return _typed(self.facts().get("program"))
        entry = os.path.basename(asked["entry"]) if asked["program"] else asked["entry"]
        return shlex.join(run_words(entry, asked["programArgsList"], module=asked["module"], pyflink=asked["pyflink"]))


def _typed(words: Sequence[str] | None) -> str:
    return _SOME_PROGRAM if not words else shlex.join(words)


def checked(answer: Answer) -> dict[str, Any]:
    """The body of a good answer; an error with the other side's own words otherwise."""
    if answer.status >= 400 and "errors" in answer.body:
        raise PenstockError("; ".join(map(str, answer.body["errors"])))
    # A proxy, Spark's page, whatever listens there.
    if answer.status >= 400 or set(answer.body) in ({"text"}, {"items"}):
        raise PenstockError(
            f"what answered (status {answer.status}) is no dispatcher of Penstock's: --jobmanager or PENSTOCK_JOBMANAGER should "
            "be the address that `penstock jobmanager` prints and `penstock ui` shows"
        )
    return answer.body


def home_at(directory: Path | None) -> JobHome:
    """The home in this folder; None: the default one."""
    return JobHome.default() if directory is None else JobHome(directory.absolute())


def given_token(file: Path | None) -> str | None:
    """The token that the user names; None: none."""
    where = "PENSTOCK_TOKEN" if file is None else str(file)
    try:
        token = os.environ.get("PENSTOCK_TOKEN", "") if file is None else file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the token cannot be read from {file} ({error})") from error
    if not re.fullmatch("[!-~]*", token) or (file is not None and not token):
        raise ConfigurationError(
            f"what is in {where} is no token: it has letters, digits and signs of ASCII, without spaces"
        )
    return token or None


def dispatcher_at(jobmanager: str | None, token_file: Path | None, directory: Path | None) -> Endpoint | None:
    """None when none is named; an empty variable names none. A token that nobody names is that of the dispatcher that runs on the
    home folder: if another one is meant, it does not learn it."""
    if not jobmanager:
        return None
    address = jobmanager if "://" in jobmanager else f"http://{jobmanager}"
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        fits = False
    if not fits:
        raise ConfigurationError(
            f"{jobmanager!r} is not a dispatcher's address: write it as `penstock jobmanager` prints it, for example "
            "http://127.0.0.1:8081"
        )
    token = given_token(token_file)
    if token is None:
        token = (read_json(home_at(directory).root / "dispatcher.json") or {}).get("token")
    return Endpoint(address, token)


def all_targets(directory: Path | None, jobmanager: str | None, token_file: Path | None) -> list[Listed]:
    """Every job there is, the newest first."""
    remote = dispatcher_at(jobmanager, token_file, directory)
    if remote is not None:
        listed = checked(remote.ask("GET", "/jobs/overview"))["jobs"]
        return [(RemoteTarget(remote, overview["jid"]), overview) for overview in listed]
    found = ((known, known.facts()) for known in known_jobs(home_at(directory)))
    return [(LocalTarget(known), documents.overview(facts)) for known, facts in found if facts is not None]


def find(name: str, directory: Path | None, jobmanager: str | None, token_file: Path | None) -> Target:
    """By id, else by name, else by the beginning of one: a job that is called `b` is meant before one whose id begins so."""
    if not jobmanager and os.sep in name:
        return _by_folder(Path(name), home_at(directory))
    listed = all_targets(directory, jobmanager, token_file)
    where = jobmanager or str(home_at(directory).root)
    fitting = (
        [target for target, _ in listed if target.job_id == name]
        or _by_name([(target, job) for target, job in listed if job["name"] == name])
        or [target for target, _ in listed if name and target.job_id.startswith(name)]
        or _by_name([(target, job) for target, job in listed if name and job["name"].lower().startswith(name.lower())])
    )
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        meant = difflib.get_close_matches(name, {job["name"]: None for _, job in listed}, 1)
        suggested = f"did you mean {meant[0]!r}? " if meant else ""
        raise NoSuchJob(f"no job {name!r} in {where}: {suggested}`penstock list --all` shows those there are")
    raise NoSuchJob(
        f"{name!r} fits {len(fitting)} jobs ({', '.join(t.job_id[:12] for t in fitting)}): write more of the id"
    )


def _by_name(listed: Sequence[Listed]) -> list[Target]:
    """Of jobs of one name the newest that has not ended, else the newest; of several names all jobs."""
    if len({job["name"] for _, job in listed}) > 1:
        return [target for target, _ in listed]
    return [target for target, job in listed if job["state"] not in TERMINAL][:1] or [target for target, _ in listed][
        :1
    ]


def _by_folder(path: Path, home: JobHome) -> Target:
    """A job folder: its control files are in it or, by its id, in the home."""
    path = path.absolute()
    if not path.is_dir():
        raise NoSuchJob(f"there is no folder {path}")
    folder = JobFolder(path)
    facts = folder.facts()
    if facts is not None:
        return LocalTarget(KnownJob(folder, facts["job_id"]))
    beside = JobFolder(path.parent)  # <home>/jobs/<id>/job
    if is_job_id(beside.job_id) and beside.facts() is not None:
        return LocalTarget(KnownJob(beside))
    job_id = str((read_json(path / "job.json") or {}).get("job_id", ""))
    if is_job_id(job_id) and home.job(job_id).facts() is not None:
        return LocalTarget(KnownJob(home.job(job_id)))
    raise ConfigurationError(
        f"{path} belongs to no job that can be reached: run the program with `penstock run`, or set "
        "penstock.control.enabled to true"
    )


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
