"""Typed tuples that became columns on their way have places and no names: a sink with names of its own takes them by place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import JobFailedError

TABLE = pa.schema([("index", pa.int64()), ("nth", pa.int64())])
LONGS = [Types.LONG(), Types.LONG()]


def written(folder: Path, kind: TypeInformation, exchanged: bool) -> list[tuple[int, int]]:
    config = Configuration()
    config.set_string("penstock.execution.mode", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    pairs = env.from_collection([1, 2, 3, 4]).map(lambda n: (n, -n), output_type=kind)
    (pairs.rebalance() if exchanged else pairs).sink_to(FileSink.parquet(str(folder), TABLE))
    env.execute("tuples")
    rows = [row for path in committed_files(str(folder)) for row in pq.read_table(path).to_pylist()]
    return sorted((row["index"], row["nth"]) for row in rows)


@pytest.mark.parametrize("exchanged", [False, True])
def test_tuples_are_taken_by_place(tmp_path: Path, exchanged: bool) -> None:
    assert written(tmp_path / "out", Types.TUPLE(LONGS), exchanged) == [(1, -1), (2, -2), (3, -3), (4, -4)]


def test_columns_with_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"\['nth', 'index'\] came, the sink writes \['index', 'nth'\]"):
        written(tmp_path / "out", Types.ROW_NAMED(["nth", "index"], LONGS), True)
