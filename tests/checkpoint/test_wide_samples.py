"""Jobs with every kind of state go on from checkpoints and savepoints that the last release made, with each state backend.

What the release had committed is stored with the sample. With what the restored job commits it is the whole answer, once: nothing
is lost, doubled or misread, whatever the parallelism, and whichever backend restores it.
"""

from __future__ import annotations

import json
import tarfile
from ast import literal_eval
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import savepoint
from penstock.common import Configuration
from penstock.connectors.file_sink import committed_files
from penstock.testing import ListSink
from tests.checkpoint.wide_sample import KEYS, LISTED, RECORDS, Transactions, build, environment, expected

DATA = Path(__file__).parents[1] / "data"
BACKENDS = ("hashmap", "rocksdb")
ONE_BY_ONE = ("rolled", "early", "held")  # these also say how they got there


@pytest.fixture
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(DATA / f"wide-v2-{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def run(
    sample: Path, kind: str, *, job: Path, backend: str, parallelism: int, path: Path | None
) -> dict[str, list[str]]:
    """What the sample's run and this one have committed, as text, by sink."""
    sink = str(sample)
    files = sample / f"{kind}-files"
    env = environment(job, backend, parallelism, epoch_records=300)
    if path is not None:
        env.configure(Configuration.from_dict({"execution.state-recovery.path": str(path)}))
    build(env, sink, files)
    client = env.execute_async("restored")
    client.get_job_execution_result().result()
    read = sum(report.records_in for report in client.epoch_reports())
    assert 0 < read < 4 * RECORDS, "it went on where the sample ends"
    committed: dict[str, list[str]] = json.loads((sample / f"{kind}-committed.json").read_text())
    for name in LISTED:
        committed[name] += map(repr, ListSink.results(f"{sink}-{name}"))
        ListSink.clear(f"{sink}-{name}")
    committed["transactions"] += [repr(v) for values in Transactions.committed.pop(sink).values() for v in values]
    written = [Path(file).read_text().replace('"', "").split() for file in committed_files(files)]
    committed["files"] = [repr(line) for lines in written for line in lines if line != "index"]
    return committed


def check(committed: dict[str, list[str]], parallelism: int) -> None:
    exact = [name for name in (*LISTED, "transactions", "files") if name not in ONE_BY_ONE]
    for name in exact:
        assert Counter(committed[name]) == Counter(map(repr, expected(name))), name
    assert len(committed["rolled"]) == RECORDS
    assert largest(committed["rolled"]) == {f"k{key}": sum(range(key, RECORDS, KEYS)) for key in range(KEYS)}
    assert largest(committed["early"]) == {f"k{key}": RECORDS // KEYS for key in range(KEYS)}
    check_operator_state([literal_eval(text) for text in committed["held"]], parallelism)


def largest(pairs: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, number in map(literal_eval, pairs):
        found[key] = max(number, found.get(key, number))
    return found


def check_operator_state(said: list[tuple[str, Any]], parallelism: int) -> None:
    """The list was dealt out, the union list was given to all."""
    assert sorted(index for what, index in said if what == "held") == list(range(RECORDS))
    after = {index for what, index in said if what == "after"}
    noted = [indices for what, indices in said if what == "noted"]
    assert noted == [tuple(index for index in range(0, RECORDS, 10) if index not in after)] * parallelism


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("kind", ["checkpoint", "savepoint"])
@pytest.mark.parametrize(("sample", "backend"), [(b, b) for b in BACKENDS], indirect=["sample"], ids=BACKENDS)
def test_a_job_goes_on_exactly_from_what_the_last_release_stored(
    sample: Path, backend: str, kind: str, parallelism: int
) -> None:
    path = sample / "savepoint"
    if kind == "checkpoint":
        path = max((sample / "checkpoint.job/checkpoints").glob("*/manifest.json")).parent
    found = savepoint.load(str(path))
    assert found.kind == kind
    deepest = max(len(task.handles) for task in found.tasks)
    assert (deepest > 2, bool(found.committables)) == ((kind == "checkpoint"),) * 2, "incremental, with promised output"
    committed = run(sample, kind, job=sample / "new.job", backend=backend, parallelism=parallelism, path=path)
    check(committed, parallelism)


@pytest.mark.parametrize(("sample", "backend"), [BACKENDS, BACKENDS[::-1]], indirect=["sample"])
def test_a_job_folder_of_the_last_release_is_gone_on_with_by_either_backend(sample: Path, backend: str) -> None:
    """Incremental checkpoints of two releases are in one chain, and another parallelism begins new ones."""
    job = sample / "checkpoint.job"
    committed = run(sample, "checkpoint", job=job, backend=backend, parallelism=2 + BACKENDS.index(backend), path=None)
    check(committed, 2 + BACKENDS.index(backend))
