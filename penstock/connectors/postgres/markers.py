"""Which epochs of a sink are in the database: rows written in the same transactions as their data."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.errors import FencedError

# Names of commits that are remembered: more than checkpoints are retained, so that one that is fallen back to is known.
_REMEMBERED = 64
_CREATE = (
    # Two jobs may come at once, and "if not exists" alone is no protection from that.
    "select pg_advisory_xact_lock(hashtext('penstock_commits'))",
    "create table if not exists penstock_sinks (job text, sink text, owner text not null, primary key (job, sink))",
    "create table if not exists penstock_commits (job text, sink text, name text, epoch bigint not null, rows bigint not null, "
    "committed_at timestamptz not null default now(), primary key (job, sink, name))",
)


class Markers:
    """Of one sink, for one committer's life. All methods but `create` work inside the caller's transaction."""

    def __init__(self, sink_id: str) -> None:
        self._sink_id = sink_id
        self._token = uuid.uuid4().hex  # this committer among all attempts of the job
        self._accepted: dict[str, set[str]] = {}  # by job: owners who are us, or whom we were about to replace

    def create(self, connection: Any) -> None:
        """Unless they are there. Needs the right to create tables; or create them beforehand (docs/howto/postgres.md)."""
        there = connection.execute("select to_regclass('penstock_sinks'), to_regclass('penstock_commits')").fetchone()
        if None in there:
            for statement in _CREATE:
                connection.execute(statement)
        connection.commit()

    def committed(self, connection: Any, job: str, name: str) -> bool:
        """Locks the sink against all other committers until the transaction ends, so that the answer stays true."""
        key = (job, self._sink_id)
        connection.execute("insert into penstock_sinks values (%s, %s, '') on conflict do nothing", key)
        (self._owner,) = connection.execute(
            "select owner from penstock_sinks where job = %s and sink = %s for update", key
        ).fetchone()
        found = connection.execute(
            "select from penstock_commits where job = %s and sink = %s and name = %s", (*key, name)
        ).fetchone()
        return found is not None

    def claim(self, connection: Any, job: str) -> None:
        """After `committed`. The first commit takes the sink over; from then on, another owner means that a newer attempt did."""
        accepted = self._accepted.get(job)
        if accepted is not None and self._owner not in accepted:
            raise FencedError(
                f"sink {self._sink_id} of job {job}: a newer attempt of this job has taken over its output in the database; this "
                "one stops and changes nothing"
            )
        # The outcome of this transaction may never be known: then the owner is either of these.
        self._accepted[job] = {self._token, self._owner}
        connection.execute(
            "update penstock_sinks set owner = %s where job = %s and sink = %s", (self._token, job, self._sink_id)
        )

    def mark(self, connection: Any, job: str, name: str, epoch: int, rows: int) -> None:
        key = (job, self._sink_id)
        connection.execute(
            "insert into penstock_commits (job, sink, name, epoch, rows) values (%s, %s, %s, %s, %s)",
            (*key, name, epoch, rows),
        )
        # By the job's own count, not by the server's clock, which may go back. Commits of later epochs are there when the job fell
        # back to an older checkpoint: they stay until it has passed them, and never push out what it commits now.
        connection.execute(
            "delete from penstock_commits where (job, sink) = (%s, %s) and epoch < (select min(epoch) from (select epoch from "
            "penstock_commits where (job, sink) = (%s, %s) and epoch <= %s order by epoch desc limit %s) newest)",
            (*key, *key, epoch, _REMEMBERED),
        )

    def done(self, job: str) -> None:
        """The transaction is known to be committed."""
        self._accepted[job] = {self._token}
