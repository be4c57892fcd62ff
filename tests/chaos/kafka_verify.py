"""What independent readers find after a chaos run, against a sequential reference."""

from __future__ import annotations

from collections import defaultdict

from tests.chaos.kafka_job import KEYS, WINDOW_MS, event
from tests.servers.postgres import PostgresServer
from tests.servers.topics import Topics

PARTITIONS = 8  # of the input


def reference(records: int) -> tuple[dict[int, int], dict[tuple[int, int], tuple[int, int]]]:
    """Records of each user; (count, sum of indices) of each (user, window)."""
    counts: dict[int, int] = defaultdict(int)
    windows: dict[tuple[int, int], tuple[int, int]] = {}
    for index in range(records):
        user, at = event(index)
        counts[user] += 1
        start = at - at % WINDOW_MS
        count, total = windows.get((user, start), (0, 0))
        windows[(user, start)] = count + 1, total + index
    return counts, windows


def verify_topics(topics: Topics, running: str, windows: str, records: int) -> dict[str, int]:
    """A reader of committed records only."""
    seen: set[int] = set()
    duplicated = 0
    numbers: dict[int, list[int]] = defaultdict(list)
    order: dict[tuple[int, int], list[int]] = defaultdict(list)
    for value in topics.values(running):
        user, number, index = (int(part) for part in value.split(b"|"))
        assert user == event(index)[0]
        duplicated += index in seen
        seen.add(index)
        numbers[user].append(number)
        order[(user, index % PARTITIONS)].append(index)
    assert (records - len(seen), duplicated) == (0, 0), f"lost {records - len(seen)}, duplicated {duplicated}"
    for user, given in numbers.items():
        assert given == list(range(1, len(given) + 1)), f"user {user} was numbered {given[:20]}…"
    reordered = sum(indices != sorted(indices) for indices in order.values())
    assert reordered == 0, f"{reordered} (user, partition) sequences are out of order"
    _, expected = reference(records)
    found = [tuple(int(part) for part in value.split(b"|")) for value in topics.values(windows)]
    given_windows = {(user, start): (count, total) for user, start, count, total in found}
    assert len(found) == len(given_windows), "a window is there twice"
    differing = sorted(set(given_windows.items()) ^ set(expected.items()))
    assert not differing, f"{len(given_windows)} windows, {len(expected)} expected; some that differ: {differing[:6]}"
    assert len(numbers) == min(KEYS, records)
    return {"records": len(seen), "windows": len(found)}


def verify_tables(database: PostgresServer, records: int) -> dict[str, int]:
    """A query of its own."""
    counts, windows = reference(records)
    found = dict(database.sql("select user_id, number from running"))
    assert found == counts, (
        f"{len(found)} users with {sum(found.values())} records, expected {len(counts)} with {records}"
    )
    wrong = [row for row in database.sql("select user_id, last from running") if event(row[1])[0] != row[0]]
    assert wrong == [], f"records of another user: {wrong[:5]}"
    for table in ("windows", "window_log"):
        rows = database.sql(f"select user_id, start, count, total from {table}")
        given = {(user, start): (int(count), int(total)) for user, start, count, total in rows}
        assert len(rows) == len(given), f"{table}: a window is there twice"
        assert given == windows, f"{table}: {len(given)} windows, {len(windows)} expected, or sums differ"
    return {"users in PostgreSQL": len(found), "windows in PostgreSQL": len(windows)}
