"""A manifest as bytes.

It is JSON, `{"penstock":"manifest","version":3,"crc32":"…","body":{…}}`, with the checksum taken over the version and
the body's bytes as they stand in the file, so that any changed byte is noticed.

Versions: 3 has a field for everything that decides. 2 and 1 kept some of that among free statistics. 2 lists the operators of every
task, so that state finds its operator when chains are built differently; 1 did not, and all files are looked through for an
operator whose vertex is not found by name.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import cloudpickle

from penstock.checkpoint.manifest import (
    FORMAT_VERSION,
    WHAT_TO_DO,
    FileState,
    InlineState,
    Json,
    Manifest,
    Rescaled,
    SourcePosition,
    SparkPosition,
    StateHandle,
    TaskState,
)
from penstock.errors import CorruptSnapshotError, StorageError
from penstock.pickling import load_stored

T = TypeVar("T")

_HEAD = re.compile(rb'\{"penstock":"manifest","version":([1-9][0-9]{0,5}),"crc32":"([0-9a-f]{8})","body":')
_TAIL = b"}\n"


def encode(manifest: Manifest) -> bytes:
    """In today's version, whatever version it was read from."""
    body = json.dumps(_body(manifest), sort_keys=True, separators=(",", ":")).encode()
    head = f'{{"penstock":"manifest","version":{FORMAT_VERSION},"crc32":"{_crc(FORMAT_VERSION, body):08x}","body":'
    return head.encode() + body + _TAIL


def decode(data: bytes, *, source: str) -> Manifest:
    """CorruptSnapshotError naming `source` if one byte differs, if the version is unknown, or if a field is not what it must be:
    then that field, too."""
    head = _HEAD.match(data)
    if head is None or not data.endswith(_TAIL):
        raise CorruptSnapshotError(f"{source}: is not a whole Penstock manifest ({len(data)} bytes): {WHAT_TO_DO}")
    version, expected = int(head[1]), int(head[2], 16)
    body = data[head.end() : -len(_TAIL)]
    found = _crc(version, body)
    if found != expected:
        raise CorruptSnapshotError(
            f"{source}: checksum {found:08x} instead of {expected:08x}; the manifest is damaged: {WHAT_TO_DO}"
        )
    read = READERS.get(version)
    if read is None:
        raise CorruptSnapshotError(
            f"{source}: is whole but has manifest version {version}, and this Penstock reads {sorted(READERS)}: "
            "use the Penstock release that wrote it, or a newer one"
        )
    try:
        return read(_Value(json.loads(body), "body"))
    except ValueError as error:
        raise CorruptSnapshotError(f"{source}: the manifest's content makes no sense: {error}: {WHAT_TO_DO}") from error


def pack_committables(committables: Sequence[Any]) -> bytes:
    """Kept as bytes in the manifest, so that reading it does not need the sinks' classes."""
    return bytes(cloudpickle.dumps(list(committables), 5))


def unpack_committables(data: bytes, *, sink: str) -> list[Any]:
    """Rebuilds what a sink is to commit; StorageError if its classes cannot be imported."""
    try:
        unpacked = load_stored(data)
    except Exception as error:
        raise StorageError(
            f"the committables of sink {sink!r} cannot be rebuilt ({type(error).__name__}: {error}); make the classes "
            "they were written with importable, then resume again: their output is not committed yet"
        ) from error
    return list(unpacked)


def _crc(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d\n" % version))


# Fields of every version that are in the file as they are.
_PLAIN: dict[str, type] = {
    **dict.fromkeys(("job_id", "job_name"), str),
    **dict.fromkeys(("checkpoint_id", "epoch", "generation"), int),
    **dict.fromkeys(("created_ms", "processing_time_ms", "max_parallelism"), int),
    "finished": bool,
}


# ---------------------------------------------------------------- writing


def _body(manifest: Manifest) -> dict[str, Json]:
    rescaled = manifest.rescaled
    return {
        **{name: getattr(manifest, name) for name in _PLAIN},
        "kind": manifest.kind,
        "sources": {uid: {"state": s.state, "finished": s.finished} for uid, s in manifest.sources.items()},
        "spark": None if manifest.spark is None else _spark(manifest.spark),
        "tasks": [_task(task) for task in manifest.tasks],
        "stateful": list(manifest.stateful),
        "committables": {sink: base64.b64encode(data).decode() for sink, data in manifest.committables.items()},
        "rescaled": None if rescaled is None else {"given": rescaled.given, "now": rescaled.now},
        "restored_from": manifest.restored_from,
        "claimed_savepoint": manifest.claimed_savepoint,
    }


def _spark(position: SparkPosition) -> dict[str, Json]:
    files = [
        {"name": name, "path": file.path, "size": file.size, "crc32": file.crc32}
        for name, file in position.files.items()
    ]
    return {
        "batch": position.batch, "lines": list(position.lines), "files": files, "location": position.location
    }  # fmt: skip


def _task(task: TaskState) -> dict[str, Json]:
    groups = task.key_group_range
    return {
        "vertex": task.vertex,
        "subtask": task.subtask,
        "parallelism": task.parallelism,
        "key_groups": None if groups is None else [groups.start, groups.stop],
        "handles": [_handle(handle) for handle in task.handles],
        "operators": None if task.operators is None else list(task.operators),
    }


def _handle(handle: StateHandle) -> dict[str, Json]:
    match handle:
        case InlineState(data=data):
            return {"inline": base64.b64encode(data).decode()}
        case FileState(path=path, size=size, crc32=crc32):
            return {"file": path, "size": size, "crc32": crc32}


# ---------------------------------------------------------------- reading


class _Value:
    """A part of the body that knows its name: what is not of the type that is asked for is a ValueError that tells it."""

    def __init__(self, value: Json, name: str) -> None:
        self._value, self._name = value, name

    def of(self, kind: type[T]) -> T:
        if type(self._value) is not kind:  # exactly: a bool is no number
            raise ValueError(f"{self._name} is {self._value!r:.80}, not {_KINDS[kind]}")
        return self._value

    def __getitem__(self, field: str) -> _Value:
        fields = self.of(dict)
        if field not in fields:
            raise ValueError(f"{self._name} has no {field}")
        return _Value(fields[field], f"{self._name}.{field}")

    def get(self, field: str) -> _Value:
        return _Value(self.of(dict).get(field), f"{self._name}.{field}")

    def has(self, field: str) -> bool:
        return field in self.of(dict)

    def or_none(self, read: Callable[[_Value], T]) -> T | None:
        return None if self._value is None else read(self)

    def each(self, read: Callable[[_Value], T]) -> tuple[T, ...]:
        return tuple(read(_Value(value, f"{self._name}[{index}]")) for index, value in enumerate(self.of(list)))

    def mapped(self, read: Callable[[_Value], T]) -> dict[str, T]:
        return {key: read(_Value(value, f"{self._name}[{key!r}]")) for key, value in self.of(dict).items()}

    def any(self) -> Json:
        return self._value

    def text(self) -> str:
        return self.of(str)

    def number(self) -> int:
        return self.of(int)

    def flag(self) -> bool:
        return self.of(bool)

    def data(self) -> bytes:
        try:
            return base64.b64decode(self.text(), validate=True)
        except binascii.Error as error:
            raise ValueError(f"{self._name} is not in base 64 ({error})") from None

    def one_of(self, *choices: T) -> T:
        if self._value not in choices:
            raise ValueError(f"{self._name} is {self._value!r:.80}, not one of {', '.join(map(repr, choices))}")
        return self._value  # type: ignore[no-any-return]


_KINDS: dict[type, str] = {str: "a text", int: "a number", bool: "true or false", dict: "an object", list: "a list"}


def _read_v3(body: _Value) -> Manifest:
    return _manifest(
        body,
        3,
        spark=body["spark"].or_none(_read_spark),
        stateful=body["stateful"].each(_Value.text),
        rescaled=body["rescaled"].or_none(lambda r: Rescaled(given=r["given"].number(), now=r["now"].number())),
        restored_from=body["restored_from"].or_none(_Value.text),
        claimed_savepoint=body["claimed_savepoint"].or_none(_Value.text),
    )


def _read_with_statistics(body: _Value, version: int) -> Manifest:
    noted = body["statistics"]
    rescaled = noted.get("rescaled").or_none(lambda pair: pair.each(_Value.number))
    if rescaled is not None and len(rescaled) != 2:
        raise ValueError("body.statistics.rescaled is not a pair")
    return _manifest(
        body,
        version,
        spark=body["spark_offsets"].or_none(_read_spark),
        stateful=noted.get("stateful").or_none(lambda names: names.each(_Value.text)) or (),
        rescaled=None if rescaled is None else Rescaled(given=rescaled[0], now=rescaled[1]),
        restored_from=noted.get("restored_from").or_none(_Value.text),
        claimed_savepoint=noted.get("claimed_savepoint").or_none(_Value.text),
    )


def _manifest(body: _Value, version: int, **of_version: Any) -> Manifest:
    """What all versions have in common, and the rest."""
    return Manifest(
        **{name: body[name].of(kind) for name, kind in _PLAIN.items()},
        kind=body["kind"].one_of("checkpoint", "savepoint"),
        sources=body["sources"].mapped(
            lambda source: SourcePosition(state=source["state"].any(), finished=source["finished"].flag())
        ),
        tasks=body["tasks"].each(_read_task),
        committables=body["committables"].mapped(_Value.data),
        format_version=version,
        **of_version,
    )


def _read_spark(position: _Value) -> SparkPosition:
    return SparkPosition(
        batch=position["batch"].number(),
        lines=position["lines"].each(_Value.text),
        files=dict(position.get("files").or_none(lambda files: files.each(_read_spark_file)) or ()),
        location=position.get("location").or_none(_Value.text),
    )


def _read_spark_file(file: _Value) -> tuple[str, FileState]:
    state = FileState(path=file["path"].text(), size=file["size"].number(), crc32=file["crc32"].number())
    return file["name"].text(), state


def _read_task(task: _Value) -> TaskState:
    groups = task["key_groups"].or_none(lambda groups: groups.each(_Value.number))
    if groups is not None and len(groups) != 2:
        raise ValueError(f"a task's key_groups are {groups}, not where they begin and end")
    return TaskState(
        vertex=task["vertex"].text(),
        subtask=task["subtask"].number(),
        parallelism=task["parallelism"].number(),
        key_group_range=None if groups is None else range(*groups),
        handles=task["handles"].each(_read_handle),
        operators=task.get("operators").or_none(lambda operators: operators.each(_Value.text)),
    )


def _read_handle(handle: _Value) -> StateHandle:
    if handle.has("inline"):
        return InlineState(data=handle["inline"].data())
    return FileState(path=handle["file"].text(), size=handle["size"].number(), crc32=handle["crc32"].number())


# One reader for each version ever released: old savepoints stay readable.
READERS: dict[int, Callable[[_Value], Manifest]] = {
    1: partial(_read_with_statistics, version=1),
    2: partial(_read_with_statistics, version=2),
    3: _read_v3,
}
