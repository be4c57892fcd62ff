"""The id of a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class JobID:
    """An opaque unique name; `str` gives the text that REST paths and job folders use."""

    value: str

    def __str__(self) -> str:
        return self.value
