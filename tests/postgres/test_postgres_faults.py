"""Faults 6 to 9 against a real server: real kills, commits whose outcome nobody told, and a database that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.jobs import eventually
from tests.postgres.jobs import MAX, assert_exact, counting, create_tables, embedded
from tests.postgres.proxy import When, proxy
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
COMMIT = b"COMMIT\x00"


def run_child(folder: Path, conninfo: str, table: str, variables: dict[str, str]) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.postgres.child", str(folder), conninfo, table],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=ROOT,
        timeout=90,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr[-3000:]
    return done.returncode


@pytest.mark.parametrize("point", ["after-manifest", "during-sink-commit", "before-spark-log"])
def test_a_driver_killed_between_pre_commit_commit_and_log_leaves_every_row_once(
    point: str, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    """Faults 6 and 7: `during-sink-commit` is between the commits of the two sinks, `before-spark-log` after both."""
    create_tables(postgres, table)
    proof = tmp_path / "fired"
    variables = {"PENSTOCK_FAULT": f"{point}:2", "PENSTOCK_FAULT_ONCE": str(proof)}
    assert run_child(tmp_path, postgres.conninfo, table, variables) == -9
    assert proof.read_text().split()[0] == point
    logged = len(postgres.sql(f"select from {table}_log"))
    upserted = len(postgres.sql(f"select from {table}"))
    commits = len(postgres.sql("select from penstock_commits"))
    assert run_child(tmp_path, postgres.conninfo, table, variables) == 0
    assert_exact(postgres, table)
    assert len(postgres.sql("select from penstock_commits")) > commits
    assert logged < 300
    assert upserted <= 10


# Four writers and each sink's committer commit the set-up of a connection, and the committer then the creation of the markers.
@pytest.mark.parametrize(("nth", "failures"), [(7, 1), (11, 0)], ids=["new connection", "kept connection"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_is_lost_on_the_wire_is_neither_lost_nor_repeated(
    when: When, nth: int, failures: int, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    """Fault 8. On a connection that was kept it is tried again at once; else the job restarts."""
    create_tables(postgres, table)
    with proxy(postgres.port, COMMIT, nth, when) as between:
        conninfo = postgres.conninfo.replace(
            f"port={postgres.port}", f"port={between.port} sslmode=disable gssencmode=disable"
        )
        job = embedded(tmp_path, counting(conninfo, table), MAX)
        job.run()
        assert between.fired == 1
    assert job.failures == failures
    assert_exact(postgres, table)


@pytest.mark.parametrize("word", [b"copy ", COMMIT])
def test_the_server_killed_in_the_middle_of_a_transaction_changes_nothing(
    word: bytes, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    create_tables(postgres, table)
    killed: list[int] = []

    def restart() -> None:
        killed.append(postgres.kill())
        postgres.start()

    with proxy(postgres.port, word, 11 if word == COMMIT else 3, "after", restart) as between:
        conninfo = postgres.conninfo.replace(
            f"port={postgres.port}", f"port={between.port} sslmode=disable gssencmode=disable"
        )
        embedded(tmp_path, counting(conninfo, table), MAX).run()
        assert between.fired == 1
    assert len(killed) == 1
    assert_exact(postgres, table)


def test_connections_that_the_server_ends_between_epochs_are_not_noticed(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    create_tables(postgres, table)
    ended: list[tuple[int]] = []
    job = embedded(tmp_path, counting(postgres.conninfo, table), MAX)

    def end(point: str, epoch: int) -> None:
        if point == "after-manifest" and epoch in (2, 4):
            ended.extend(
                postgres.sql(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'penstock'"
                )
            )

    job.master.reach = end
    job.run()
    assert len(ended) == 4
    assert job.failures == 0
    assert_exact(postgres, table)


def test_an_epoch_staged_long_ago_is_committed_by_a_job_that_was_stopped(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    """Fault 9: no transaction is open while a job is down, so there is none that could expire, not even with the server's
    strictest time-outs and a restart of the server in between."""
    create_tables(postgres, table)
    proof = tmp_path / "fired"
    variables = {"PENSTOCK_FAULT": "after-manifest:2", "PENSTOCK_FAULT_ONCE": str(proof)}
    assert run_child(tmp_path, postgres.conninfo, table, variables) == -9
    # A server notices the end of a client when it next looks, which takes a moment on a busy machine.
    connections = "select from pg_stat_activity where application_name = 'penstock'"
    eventually(lambda: postgres.sql(connections) == [], "the end of the job's connections")
    assert postgres.sql("select from pg_prepared_xacts") == []
    postgres.stop()
    postgres.start()
    assert run_child(tmp_path, postgres.conninfo, table, variables) == 0
    assert_exact(postgres, table)
