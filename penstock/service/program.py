"""A user's program, run unchanged in this process: what `penstock run` does, and what a driver process is."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from penstock.driver.control import home
from penstock.errors import ConfigurationError, JobDefinitionError, PenstockError


class ProgramError(Exception):
    """The program itself raised; `error` is what, with a traceback that begins in the program."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProgram:
    """A script or module with its arguments. `py_files` go on the module path, here and on the workers."""

    entry: str  # a path or, with `is_module`, a module's dotted name
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    pyflink: bool = False  # `import pyflink` means Penstock
    py_files: tuple[str, ...] = ()


def run_words(entry: str, arguments: Sequence[str], *, module: bool, pyflink: bool) -> list[str]:
    """What is typed after `penstock run` and its other options."""
    return [*(["--pyflink"] if pyflink else []), *(["-m"] if module else []), entry, *arguments]


def run_program(program: UserProgram) -> None:
    """Run it as `__main__`, then wait for the jobs it started and did not wait for.

    Raises PenstockError as the program does, and ProgramError around anything else.

    The module stays in place as `sys.modules["__main__"]` afterwards: its classes are pickled and unpickled by that name
    as long as jobs run. Meant for a process that does nothing else.
    """
    if program.pyflink:
        from penstock.compat import pyflink

        pyflink.install()
    extend_path(program.py_files)
    code, file, package = _module_code(program.entry) if program.is_module else _script_code(program.entry)
    told = run_words(program.entry, program.arguments, module=program.is_module, pyflink=program.pyflink)
    home.this_program[:] = told
    main = ModuleType("__main__")
    main.__dict__.update({"__file__": file, "__package__": package, "__builtins__": __builtins__})
    sys.modules["__main__"] = main
    sys.argv = [file, *program.arguments]
    # Where Python itself would look first: beside a script, in the current folder for a module.
    sys.path.insert(0, os.getcwd() if program.is_module else os.path.dirname(os.path.abspath(file)))
    try:
        exec(code, main.__dict__)
    except PenstockError:
        raise
    except ModuleNotFoundError as error:
        if not program.pyflink and (error.name or "").partition(".")[0] == "pyflink":
            raise JobDefinitionError(
                "the program imports pyflink, which is not installed: with `penstock run --pyflink`, in the page with 'PyFlink "
                "program', Penstock takes its place"
            ).with_traceback(error.__traceback__) from None
        raise _of_the_program(error) from error
    except Exception as error:
        raise _of_the_program(error) from error
    wait_for_jobs()


def _of_the_program(error: Exception) -> ProgramError:
    """The traceback starts in the user's own file, as if Python had run it."""
    traceback = error.__traceback__
    return ProgramError(error.with_traceback(None if traceback is None else traceback.tb_next))


def wait_for_jobs() -> None:
    """Until every job this process started has ended; raises the failure of one that failed."""
    from penstock.runtime.launch import running_jobs

    for client in running_jobs():
        client.get_job_execution_result().result()


def extend_path(py_files: Sequence[str]) -> None:
    """Makes the modules in these files and folders importable; ConfigurationError if one is missing."""
    for file in reversed(py_files):
        path = Path(file)
        if not path.exists():
            raise ConfigurationError(f"--py-files: there is no {file}")
        # A single module is found through its folder, a folder or an archive by itself.
        entry = str(path.resolve().parent if path.suffix == ".py" else path.resolve())
        if entry not in sys.path:
            sys.path.insert(0, entry)


def _script_code(path: str) -> tuple[CodeType, str, str | None]:
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise JobDefinitionError(f"the program {path!r} cannot be read: {error.strerror or error}") from error
    try:
        return compile(source, path, "exec", dont_inherit=True), path, None
    except SyntaxError as error:
        raise ProgramError(error.with_traceback(None)) from error


def _module_code(name: str) -> tuple[CodeType, str, str | None]:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:  # a package runs its __main__
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ImportError as error:
        raise JobDefinitionError(f"the module {name!r} cannot be imported: {error}") from error
    loader = None if spec is None else spec.loader
    get_code = getattr(loader, "get_code", None)
    code = None if spec is None or get_code is None else get_code(spec.name)
    if spec is None or code is None:
        raise JobDefinitionError(f"there is no module {name!r}: looked in {sys.path}")
    return code, str(spec.origin), spec.parent
