"""For tests of jobs: the embedded runtime and what goes with it. For tests of connectors: their contracts as suites."""

from __future__ import annotations

from penstock.protocol.events import Watermark
from penstock.protocol.gate import BarrierMode
from penstock.runtime.embedded.clock import ManualClock
from penstock.runtime.embedded.crash import CrashPlan, CrashPoint, SimulatedCrash
from penstock.runtime.embedded.job import EmbeddedJob
from penstock.testing.contracts import SinkContract, SourceContract
from penstock.testing.flaky_storage import FlakyStorage, StorageFault
from penstock.testing.harness import OperatorHarness
from penstock.testing.sinks import ListSink
from penstock.testing.sources import Abort, Epoch, ScriptedSource, Split, Stamped

__all__ = [
    "Abort",
    "BarrierMode",
    "CrashPlan",
    "CrashPoint",
    "EmbeddedJob",
    "Epoch",
    "FlakyStorage",
    "ListSink",
    "ManualClock",
    "OperatorHarness",
    "ScriptedSource",
    "SimulatedCrash",
    "SinkContract",
    "SourceContract",
    "Split",
    "Stamped",
    "StorageFault",
    "Watermark",
]
