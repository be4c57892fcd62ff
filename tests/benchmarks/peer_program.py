"""A system that answers with numpy, for the tests of the harness; `wrong` drops an event, `fails` ends in an error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.program import main


def stateless(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
    """W1, at ten million events a second."""
    if spec["system"] == "fails":
        raise RuntimeError("no such luck")
    events = pq.read_table(source)
    time.sleep(len(events) / 1e7)
    if output:
        prices = events["amount"].to_numpy() * 2
        kept = prices[prices % 4 == 0][spec["system"] == "wrong" :]
        Path(output).mkdir()
        pq.write_table(pa.table({"key": kept, "price": kept}), f"{output}/part-0.parquet")


if __name__ == "__main__":
    main({"W1": stateless})
