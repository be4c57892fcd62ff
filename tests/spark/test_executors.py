"""A cluster that gives no executor, and a driver that nobody can reach, are said."""

from __future__ import annotations

import logging

import pytest

from penstock.driver.failures import Notices
from penstock.runtime.epochs.executors import ExecutorWatch, loopback_notice
from penstock.runtime.epochs.session import _defaults

NAMES = {"driver": "127.0.1.1", "good": "10.77.0.5", "master": "10.77.0.1", "localhost": "127.0.0.1"}


def resolve(host: str) -> str:
    if host in NAMES:
        return NAMES[host]
    if host[0].isdigit():
        return host
    raise OSError(f"{host} is not known")


@pytest.mark.parametrize(
    ("master", "host", "wrong"),
    [
        ("spark://master:7077", "driver", True),  # 127.0.1.1 is what /etc/hosts of Debian says
        ("spark://master:7077,master2:7077", "127.0.0.1", True),
        ("yarn", "driver", True),
        ("spark://master:7077", "good", False),
        ("spark://master:7077", "unknown", False),  # Spark says it itself
        ("spark://localhost:7077", "driver", False),  # all on one host
        ("spark://127.0.0.1:7077", "127.0.0.1", False),
        ("local[2]", "driver", False),
    ],
)
def test_a_driver_whose_name_is_loopback_is_said_where_executors_are_elsewhere(
    master: str, host: str, wrong: bool
) -> None:
    text = loopback_notice(master, host, resolve)
    assert (text is not None) == wrong
    if text is not None:
        assert host in text
        assert "spark.driver.host" in text


def test_no_executor_for_a_while_is_said_once_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    now, executors, notices = 0.0, 0, Notices()
    watch = ExecutorWatch(notices, lambda: executors, "10.77.0.5", clock=lambda: now)
    with caplog.at_level(logging.WARNING, "penstock"):
        for now in (0.0, 5.0, 14.0):  # noqa: B007 - the clock
            watch.look()
            assert notices.to_json() == []
        for now in (16.0, 20.0):  # noqa: B007
            watch.look()
            assert [notice["key"] for notice in notices.to_json()] == ["no-executor"]
        assert "spark.driver.host" in notices.to_json()[0]["text"]
        assert len(caplog.records) == 1
        now, executors = 30.0, 1
        watch.look()
        assert notices.to_json() == []
        now, executors = 40.0, 0
        watch.look()
        assert notices.to_json() == [], "one was there a moment ago"
    assert ["no executor" in record.getMessage() for record in caplog.records] == [True, True]
    assert caplog.records[1].getMessage().startswith("no longer: ")


def test_on_a_cluster_spark_knows_of_a_lost_host_soon() -> None:
    assert _defaults("spark://master:7077")["spark.storage.blockManagerHeartbeatTimeoutMs"] == "30000"
    assert "spark.storage.blockManagerHeartbeatTimeoutMs" not in _defaults("local[2]")
