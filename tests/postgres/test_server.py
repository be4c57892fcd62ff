"""The server that the other tests trust."""

from __future__ import annotations

import psycopg

from tests.servers.postgres import PostgresServer


def test_what_was_committed_outlives_a_kill_of_the_server_and_what_was_not_does_not(
    postgres: PostgresServer, table: str
) -> None:
    postgres.sql(f"create table {table} (n int)")
    postgres.sql(f"insert into {table} values (1)")
    with psycopg.connect(postgres.conninfo) as connection:
        connection.execute(f"insert into {table} values (2)".encode())
        before = postgres.starts
        killed = postgres.kill()
        assert not postgres.running
        postgres.start()
        connection.close()
    assert postgres.starts > before
    assert killed
    assert postgres.sql(f"select n from {table}") == [(1,)]
