"""Whole jobs on the embedded runtime with a demon beside them, and an oracle that knows the answer.

One run follows from one number. `python -m penstock.testing.simulate --seed N` tells its story; `--seeds A..B` runs many.
"""

from __future__ import annotations

from penstock.testing.simulate.run import Outcome, simulate

__all__ = ["Outcome", "simulate"]
