"""`make yarn`: two minutes and four JVMs, so `make test` does not collect what is here."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable
from tests.servers.yarn import YarnCluster, yarn_cluster

collect_ignore_glob = [] if os.environ.get("PENSTOCK_YARN") else ["test_*.py"]


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    try:
        with yarn_cluster(tmp_path_factory.mktemp("yarn")) as cluster:
            yield cluster
    except ServerUnavailable as error:
        unavailable(error)
