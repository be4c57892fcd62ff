"""Which folders a process that starts may remove: those of processes of the same user that are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.state.local_folder import LocalFolder


def gone() -> str:
    """A process id and a start time of which there is no process."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    return f"{ended.pid}-1794830000000"


def test_only_what_is_certainly_left_by_a_dead_process_of_ours_is_removed(tmp_path: Path) -> None:
    dead = gone()
    left = [tmp_path / f"penstock-{kind}-{dead}-abc" for kind in ("state", "log", "sockets")]
    living = tmp_path / f"penstock-log-{os.getpid()}-{int(psutil.Process().create_time() * 1000)}-abc"
    reused = tmp_path / f"penstock-log-{os.getpid()}-1-abc"  # another process had this id before
    kept = [living, tmp_path / "penstock-2m1vjq2h", tmp_path / f"other-log-{dead}-abc"]
    for folder in (*left, reused, *kept):
        folder.mkdir()
        (folder / "file").write_text("")
    (tmp_path / f"penstock-log-{dead}-file").write_text("not a folder")
    (tmp_path / f"penstock-log-{dead}-link").symlink_to(living)
    mine = LocalFolder((str(tmp_path),), kind="log")
    assert mine.path().name.startswith(f"penstock-log-{os.getpid()}-")
    assert [folder for folder in (*left, reused) if folder.exists()] == []
    assert [folder for folder in kept if not (folder / "file").exists()] == []
    assert (tmp_path / f"penstock-log-{dead}-file").exists()
    mine.remove()
    assert not list(tmp_path.glob(f"penstock-log-{os.getpid()}-*-[!a]*"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder another user's")
def test_another_users_folder_stays_also_if_we_could_remove_it(tmp_path: Path) -> None:
    folder = tmp_path / f"penstock-log-{gone()}-abc"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    LocalFolder((str(tmp_path),)).path()
    assert folder.exists()
