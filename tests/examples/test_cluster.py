"""The cluster demo's job, without a cluster, and its check of the output, which must notice what it is there for."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.cluster.demo import DemoFailed, verify
from examples.cluster.job import main


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    main(str(tmp_path / "output"), 1000, 1e6)
    return tmp_path / "output"


def test_the_job_writes_every_reading_once(output: Path) -> None:
    verify(output, 1000)
    assert sorted(pq.read_table(output).column("index").to_pylist()) == list(range(1000))


@pytest.mark.parametrize("damage", ["lost", "twice", "miscounted"])
def test_a_wrong_output_is_noticed(output: Path, damage: str) -> None:
    table = pq.read_table(output)
    one = max(output.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.read_table(one)
    match damage:
        case "lost":
            pq.write_table(rows.slice(1), one)
        case "twice":
            pq.write_table(rows.slice(0, 1), output / "again.parquet")
        case "miscounted":
            totals = [total + 1 for total in rows.column("total").to_pylist()]
            pq.write_table(rows.set_column(3, "total", [totals]), one)
    assert table.num_rows == 1000
    with pytest.raises(DemoFailed, match="wrong"):
        verify(output, 1000)
