"""A server that speaks S3, on loopback: moto, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from tests.servers.jars import ServerUnavailable
from tests.servers.process import ServerProcess, free_ports

_APP = Path(__file__).with_name("s3_app.py")


class S3Server(ServerProcess):
    """Objects are in memory and end with the process."""

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
            raise ServerUnavailable("no moto: install the dev extra (`make setup`)")
        self.key = uuid.uuid4().hex
        super().__init__(folder, mark=self.key)
        (self.port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def environment(self, **more: str) -> dict[str, str]:
        """What a client needs; complete, so that nothing is looked for elsewhere."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": "secret",
            **more,
        }

    def bucket(self) -> str:
        """A new one."""
        name = f"penstock-{uuid.uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT", headers=self._signed())
        urllib.request.urlopen(request, timeout=10).close()
        return name

    def fill(self, bucket: str, prefix: str, count: int) -> None:
        self._control("/_fill", {"bucket": bucket, "prefix": prefix, "count": count})

    def fail(self, times: int, **how: Any) -> None:
        """See `tests.servers.s3_app`."""
        self._control("/_faults", {"times": times, **how})

    def heal(self) -> int:
        """No more faults; how many of those asked for were not needed."""
        left = int(self._control("/_requests", None)["left"])
        self._control("/_faults", {"times": 0})
        return left

    def requests(self) -> list[str]:
        """All there were: "PUT /bucket/key"."""
        return list(self._control("/_requests", None)["requests"])

    def _control(self, path: str, content: Any) -> Any:
        data = None if content is None else json.dumps(content).encode()
        with urllib.request.urlopen(f"{self.endpoint}{path}", data=data, timeout=30) as answer:
            return json.load(answer)

    def _signed(self) -> dict[str, str]:
        return {"Authorization": f"AWS4-HMAC-SHA256 Credential={self.key}/20260101/us-east-1/s3/aws4_request"}

    def _command(self) -> list[str]:
        return [sys.executable, str(_APP), str(self.port), self.key]

    def _answers(self) -> bool:
        try:
            self.requests()
        except (OSError, urllib.error.URLError):
            return False
        return True
