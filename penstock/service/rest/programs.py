"""Routes that bring programs and start them: /programs, and Flink's /jars as another name for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import AfterValidator, BaseModel, Field
from starlette.concurrency import run_in_threadpool

from penstock.common.implementations import RUNTIMES
from penstock.common.known_keys import check
from penstock.common.options import MAX_PARALLELISM, CheckpointingOptions, JobOptions
from penstock.driver.control.home import JobHome
from penstock.errors import ConfigurationError, JobDefinitionError
from penstock.service.dry_run import plan_of
from penstock.service.program import UserProgram
from penstock.service.rest.context import ERRORS, Json, TheDispatcher, not_found
from penstock.service.uploads import UploadedPrograms, UploadError, from_form

_UPLOAD = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"jarfile": {"type": "string", "format": "binary"}}}
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        }
    }
}
_Words = Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=1000)]


class RunRequest(BaseModel):
    """Flink's names where Flink has the field."""

    programArgsList: _Words = []
    parallelism: Annotated[int | None, Field(ge=1, le=MAX_PARALLELISM)] = None
    savepointPath: Annotated[str | None, Field(max_length=4096)] = None
    allowNonRestoredState: bool = False
    claimMode: Annotated[str, Field(pattern="^(NO_CLAIM|CLAIM)$")] = "NO_CLAIM"
    flinkConfiguration: Annotated[dict[str, str], Field(max_length=1000)] = {}
    pyflink: bool = False
    runtime: Annotated[str, AfterValidator(RUNTIMES.parse)] | None = None
    pyFiles: _Words = []

    def configuration(self) -> dict[str, str]:
        """The request as configuration keys."""
        values = dict(self.flinkConfiguration)
        if self.parallelism is not None:
            JobOptions.PARALLELISM.set(values, self.parallelism)
        if self.savepointPath is not None:
            CheckpointingOptions.RECOVERY_PATH.set(values, self.savepointPath)
            CheckpointingOptions.CLAIM.set(values, self.claimMode == "CLAIM")
        if self.allowNonRestoredState:
            CheckpointingOptions.IGNORE_UNCLAIMED.set(values, True)
        return values


class JobRequest(RunRequest):
    """A program that is on the dispatcher's machine already."""

    entry: Annotated[str, Field(min_length=1, max_length=4096)]
    module: bool = False


def _uploads(home: JobHome) -> UploadedPrograms:
    return UploadedPrograms(home.programs)


def _add_routes(router: APIRouter, *, described: bool) -> None:
    @router.get("", include_in_schema=described)
    def programs(dispatcher: TheDispatcher, request: Request) -> Json:
        return {"address": str(request.base_url), "files": _uploads(dispatcher.home).all()}

    @router.post("/upload", openapi_extra=_UPLOAD, include_in_schema=described)
    async def upload(
        dispatcher: TheDispatcher, request: Request, name: Annotated[str | None, Query(max_length=200)] = None
    ) -> Json:
        """A form with one file, or the bare file with its name as a query parameter."""
        body = await request.body()
        kind = request.headers.get("content-type", "")
        try:
            if kind.startswith("multipart/"):
                name, body = await run_in_threadpool(from_form, kind, body)
            if name is None:
                raise UploadError("the program has no name: send a form, or ?name=job.py")
            stored = await run_in_threadpool(_uploads(dispatcher.home).add, name, body)
        except UploadError as error:
            raise HTTPException(400, str(error)) from error
        return {"filename": stored, "status": "success"}

    @router.delete("/{programid}", include_in_schema=described)
    def delete(dispatcher: TheDispatcher, programid: str) -> Json:
        """Not while a job runs from it, which is started again from it when its driver dies."""
        uploads = _uploads(dispatcher.home)
        path = uploads.find(programid)
        if path is None:
            not_found(f"program {programid!r}")
        used = dispatcher.running_from(str(path))
        if used is not None:
            raise HTTPException(409, f"job {used} runs from program {programid}: cancel or stop it first")
        uploads.delete(programid)
        return {}

    @router.post("/{programid}/run", include_in_schema=described)
    def run(dispatcher: TheDispatcher, programid: str, request: RunRequest | None = None) -> Json:
        """Start a job from an uploaded program; its id."""
        request = request or RunRequest()
        program = _uploaded(_uploads(dispatcher.home), programid, request)
        return _submit(dispatcher, program, request, str(dispatcher.home.root))

    # Only POST, though Flink has GET, too: it runs the program's own lines, and any page can make a browser send a GET.
    @router.post("/{programid}/plan", include_in_schema=described)
    def plan(dispatcher: TheDispatcher, programid: str, request: RunRequest | None = None) -> Json:
        """The plan of the job that an uploaded program would start. The program is run up to its `execute`."""
        request = request or RunRequest()
        program = _uploaded(_uploads(dispatcher.home), programid, request)
        configuration, folder = _configuration(program, request), str(dispatcher.home.root)
        try:
            return {"plan": plan_of(program, configuration, runtime=request.runtime, folder=folder)}
        except JobDefinitionError as error:
            raise HTTPException(400, str(error)) from error


def _uploaded(uploads: UploadedPrograms, program_id: str, request: RunRequest) -> UserProgram:
    path = uploads.find(program_id)
    if path is None or path.suffix != ".py":
        not_found(f"program {program_id!r} that can be run")
    files = [uploads.find(file) or not_found(f"program {file!r}") for file in request.pyFiles]
    return UserProgram(
        entry=str(path),
        arguments=tuple(request.programArgsList),
        pyflink=request.pyflink,
        py_files=tuple(map(str, files)),
    )


def _configuration(program: UserProgram, request: RunRequest) -> dict[str, str]:
    configuration = request.configuration()
    if program.py_files:
        JobOptions.PYTHON_FILES.set(configuration, program.py_files)
    if any("\x00" in text for text in (*program.arguments, *configuration, *configuration.values())):
        raise HTTPException(400, "a zero byte cannot be handed to a process")
    try:
        check(configuration)
    except ConfigurationError as error:
        raise HTTPException(400, str(error)) from error
    return configuration


def _submit(dispatcher: TheDispatcher, program: UserProgram, request: RunRequest, folder: str) -> Json:
    configuration = _configuration(program, request)
    return {"jobid": dispatcher.submit(program, configuration, runtime=request.runtime, folder=folder)}


router = APIRouter(prefix="/programs", tags=["programs"], responses=ERRORS)
_add_routes(router, described=True)
jars = APIRouter(prefix="/jars", responses=ERRORS)  # the same under Flink's name, described once
_add_routes(jars, described=False)
submissions = APIRouter(tags=["programs"], responses=ERRORS)


@submissions.post("/jobs", status_code=202)
def submit(dispatcher: TheDispatcher, request: JobRequest) -> Json:
    """Start a job from a file or module on the dispatcher's machine; its id."""
    if "\x00" in request.entry:
        raise HTTPException(400, "a path has no zero byte")
    if request.module:
        top = request.entry.partition(".")[0]
        if not top.isidentifier() or importlib.util.find_spec(top) is None:
            raise HTTPException(400, f"the dispatcher finds no module {request.entry!r}")
        entry, folder = request.entry, str(dispatcher.home.root)
    else:
        path = Path(request.entry)
        if not path.is_absolute() or path.suffix != ".py" or not path.is_file():
            raise HTTPException(400, f"{request.entry!r} is not the absolute path of a Python file on this machine")
        entry, folder = str(path), str(path.parent)
    files = tuple(request.pyFiles)
    if not all(Path(file).exists() for file in files):
        raise HTTPException(400, f"pyFiles: not all of {list(files)} exist on this machine")
    program = UserProgram(
        entry=entry,
        arguments=tuple(request.programArgsList),
        is_module=request.module,
        pyflink=request.pyflink,
        py_files=files,
    )
    return _submit(dispatcher, program, request, folder)
