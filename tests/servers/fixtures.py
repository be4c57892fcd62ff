"""Real servers for tests: started when a test first asks, one each for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers.jars import ServerUnavailable
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import S3Server
from tests.servers.topics import Topics

# `make test` and CI set it: a server that cannot be had then fails its tests, where a laptop without one skips them.
# Read when tests are collected, because each test runs without Penstock's own variables.
REQUIRED = bool(os.environ.get("CI") or os.environ.get("PENSTOCK_REQUIRE_SERVERS"))


def unavailable(error: ServerUnavailable) -> None:
    if REQUIRED:
        pytest.fail(f"a real server is required here: {error}", pytrace=False)
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    try:
        server = KafkaServer(tmp_path_factory.mktemp("kafka"))
        server.start()
    except ServerUnavailable as error:
        unavailable(error)
        raise
    yield server
    server.stop()


@pytest.fixture
def topics(kafka_server: KafkaServer) -> Topics:
    """The broker, running, and a client that is independent of the connector under test."""
    if not kafka_server.running:  # the test before killed it and failed
        kafka_server.start()
    return Topics(kafka_server.bootstrap_servers)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
        server.start()
    except ServerUnavailable as error:
        unavailable(error)
        raise
    yield server
    server.remove()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """The server, running."""
    if not postgres_server.running:  # the test before killed it and failed
        postgres_server.start()
    return postgres_server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        server = S3Server(tmp_path_factory.mktemp("s3"))
        server.start()
    except ServerUnavailable as error:
        unavailable(error)
        raise
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, without faults, and this process allowed to use it."""
    s3_server.heal()
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return s3_server
