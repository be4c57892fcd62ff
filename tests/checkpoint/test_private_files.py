"""Whose files: what a job knows is its user's alone, unless a folder was made for others too; its output is for everybody."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import LocalStorage
from penstock.common.serialization import Encoder
from penstock.connectors.files import FileSink
from penstock.connectors.push.receive_log import ReceiveLog, ReceiveLogWriter
from penstock.datastream import StreamExecutionEnvironment
from penstock.state import rocksdb
from tests.embedded.jobs import configured


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def rights_below(folder: Path) -> tuple[set[str], set[str]]:
    """Of folders, itself included, and of files."""
    inside = [*folder.rglob("*")]
    return {rights(f) for f in [folder, *inside] if f.is_dir()}, {rights(f) for f in inside if f.is_file()}


def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A job with RocksDB, checkpoints, a savepoint and a file sink; returns the rights of its local state, while it ran."""
    local: dict[str, Any] = {}
    opening = rocksdb._open

    def looked_at(path: Path, settings: Any) -> Any:
        opened = opening(path, settings)
        local["rights"] = [rights(path), rights(path.parent), rights(path.parent.parent)]
        return opened

    monkeypatch.setattr(rocksdb, "_open", looked_at)
    config = configured(
        folder / "job",
        {
            "state.backend.type": "rocksdb",
            "state.backend.rocksdb.localdir": str(folder / "made" / "local"),
            "penstock.checkpoint.inline-threshold": "0",
            "penstock.epoch.max-records": "100",
        },
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    counted = env.from_sequence(0, 99_999).key_by(lambda n: n % 10).reduce(lambda a, b: a + b).uid("counted")
    sink = FileSink.for_row_format(str(folder / "output"), Encoder.simple_string_encoder()).build()
    counted.map(str).sink_to(sink)
    client = env.execute_async("private")
    while len(client.epoch_reports()) < 2:  # what the first one has changed is folded into the database with the second
        time.sleep(0.001)
    client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    return local


def test_state_checkpoints_and_savepoints_are_the_users_alone_and_output_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = run(tmp_path, monkeypatch)
    assert local["rights"] == ["0o700", "0o700", "0o700"]
    for name in ("job", "savepoints"):
        folders, files = rights_below(tmp_path / name)
        assert folders == {"0o700"}
        assert files, "nothing was written"
    checkpoints = rights_below(tmp_path / "job" / "checkpoints")
    assert checkpoints == ({"0o700"}, {"0o600"})
    assert rights_below(tmp_path / "savepoints") == ({"0o700"}, {"0o600"})
    assert "0o644" in rights_below(tmp_path / "output")[1], "what is for others is as the umask says"


def test_a_folder_that_exists_says_who_else_may_see_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, mode in (("job", 0o755), ("savepoints", 0o750)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    run(tmp_path, monkeypatch)
    assert rights_below(tmp_path / "job" / "checkpoints") == ({"0o755"}, {"0o644"})
    assert rights_below(tmp_path / "savepoints") == ({"0o750"}, {"0o640"})


def test_a_new_folder_in_one_that_is_open_to_all_is_private_and_in_a_groups_own_is_the_groups(tmp_path: Path) -> None:
    for above, expected in ((0o755, "0o700"), (0o1777, "0o700"), (0o770, "0o750"), (0o700, "0o700")):
        base = tmp_path / oct(above)
        base.mkdir()
        base.chmod(above)
        storage = LocalStorage(base / "new" / "job")
        storage.put("a/b", b"")
        assert rights_below(base / "new")[0] == {expected}  # as far as the umask lets through


def test_received_records_are_the_users_alone(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path / "made" / "log")
    writer = ReceiveLogWriter(log, 1 << 20)
    writer.append([b"a record"], 1)
    writer.close()
    assert rights(tmp_path / "made") == rights(tmp_path / "made" / "log") == "0o700"
