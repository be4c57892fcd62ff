"""Pickling of records and committables between the processes of a job."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle


def dump_by_value(value: Any) -> bytes:
    """Plain pickle, which is fast. Objects of classes that only the user's own script knows travel with their class, which
    `pickle.loads` then finds again: the same class for every payload of the job."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        data: bytes = cloudpickle.dumps(value, protocol=5)
        return data
