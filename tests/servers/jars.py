"""Jars of a real server from Maven Central, checked against a lock file and kept outside of the tree."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_CENTRAL = "https://repo1.maven.org/maven2"


class ServerUnavailable(Exception):
    """A real server cannot be had on this machine; says why."""


def cache_folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "penstock" / name


def fetch(lock: Path, folder: Path) -> list[Path]:
    """All jars of a lock file, downloaded unless they are there already. A jar with another checksum is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda line: _fetch_one(line[0], line[1], folder), lines))


def _fetch_one(coordinates: str, checksum: str, folder: Path) -> Path:
    group, artifact, version = coordinates.split(":")
    name = f"{artifact}-{version}.jar"
    target = folder / name
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == checksum:
        return target
    url = f"{_CENTRAL}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
    try:
        with urllib.request.urlopen(url, timeout=120) as response:
            data: bytes = response.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise ServerUnavailable(f"cannot download {url}: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != checksum:
        raise ServerUnavailable(f"{url} has sha256 {found}, the lock file says {checksum}: it is not the jar we know")
    # Two runs may fetch at once: each writes its own file, the rename decides.
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_bytes(data)
    temporary.replace(target)
    return target
