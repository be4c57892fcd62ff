"""What remains of a job that has ended well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.common.job_id import JobID


class JobExecutionResult:
    """The id, duration and accumulators of a finished job."""

    def __init__(self, job_id: JobID, net_runtime: int, accumulators: Mapping[str, Any] | None = None) -> None:
        self._job_id = job_id
        self._net_runtime = net_runtime
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_net_runtime(self) -> int:
        """Milliseconds from the start to the end of the job."""
        return self._net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """None when there is no accumulator of that name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        return dict(self._accumulators)

    def __str__(self) -> str:
        lines = [
            "Program execution finished",
            f"Job with JobID {self._job_id} has finished.",
            f"Job Runtime: {self._net_runtime} ms",
        ]
        if self._accumulators:
            lines.append("Accumulator Results:")
            lines.extend(f"- {name}: {value}" for name, value in self._accumulators.items())
        return "\n".join(lines)
