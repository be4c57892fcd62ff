"""What a job keeps, to look at: which states there are, some entries of one, what one key has. All as of its newest checkpoint
or savepoint.

The driver answers while it lives: it has the program's classes. Of a job that has ended the files are read by whoever is
asked, which is enough where values are made of what Python and its libraries bring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from penstock.checkpoint import savepoint, state_data
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.state_data import Read, StateEntry
from penstock.driver.control.answers import Answer, refuse
from penstock.errors import NoCheckpointError, PenstockError
from penstock.state.operator_lists import ENGINE_UNION

Json: TypeAlias = dict[str, Any]
Use: TypeAlias = Callable[[Manifest, Read], Json]
Newest: TypeAlias = Callable[[Use], Json]  # does it with the newest checkpoint, or raises PenstockError
MOST_ENTRIES: Final = 50
_TEXT: Final = 10_000  # characters of one key's value
_SHORT: Final = 300  # and of each part of an entry in a list: an answer is never larger than a page can show


def answer(newest: Newest, what: str, query: Mapping[str, str]) -> Answer:
    """`what`: `states`, or `state` with `uid`, `name` and, for one key only, `key`."""
    if what == "states":
        return _reading(newest, _states, otherwise={"checkpoint": None, "states": []})
    missing = [name for name in ("uid", "name") if name not in query]
    if missing:
        return refuse(400, f"missing query parameters: {', '.join(missing)}")
    uid, name = query["uid"], query["name"]
    if "key" not in query:
        return _reading(newest, lambda manifest, read: _entries(manifest, uid, name, read))
    try:
        key = parse_key(query["key"])
    except ValueError as error:
        return refuse(400, str(error))

    def one(manifest: Manifest, read: Read) -> Json:
        value = state_data.query(manifest, uid, name, key, read)
        return {"uid": uid, "name": name, "key": query["key"], **shown(value)}

    return _reading(newest, one)


def written(facts: Json) -> Newest:
    """The newest checkpoint or savepoint that is still there of a job that has ended."""

    def newest(use: Use) -> Json:
        kept = [c for c in facts["checkpoints"]["history"] if c["status"] == "COMPLETED" and c["path"] is not None]
        if not kept:
            raise NoCheckpointError(f"job {facts['job_id']} left no checkpoint")
        path = str(max(kept, key=lambda c: c["ack_ms"])["path"])
        return use(savepoint.load(path), savepoint.read_absolute)

    return newest


def parse_key(text: str) -> Any:
    """A key as people write it: JSON, a list stands for a tuple. ValueError, with how to write it."""
    try:
        return _tuples(json.loads(text))
    except ValueError:
        raise ValueError(
            f'key={text!r} is not JSON; write "user-1" with its quotes, 17, or [1, "a"] for a tuple'
        ) from None


def shown(value: Any) -> Json:
    """A value of the user's as JSON if it is JSON, and not too large, and as Python writes it; `shortened` if not all of it."""
    text, shortened = _cut(repr(value), _TEXT)
    try:
        document = json.dumps(value)
        return {"value": json.loads(document) if len(document) <= _TEXT else None, "text": text, "shortened": shortened}
    except (TypeError, ValueError, RecursionError):
        return {"value": None, "text": text, "shortened": shortened}


def _cut(text: str, most: int) -> tuple[str, bool]:
    return (text, False) if len(text) <= most else (f"{text[: most - 1]}…", True)


def _reading(newest: Newest, use: Use, otherwise: Json | None = None) -> Answer:
    """`otherwise`: what is right to say when there is no checkpoint."""
    try:
        return Answer(200, newest(lambda manifest, read: {"checkpoint": manifest.checkpoint_id, **use(manifest, read)}))
    except NoCheckpointError as error:
        return refuse(404, str(error)) if otherwise is None else Answer(200, otherwise)
    except PenstockError as error:
        return refuse(404, str(error))
    except Exception as error:  # a class of the program's that is not here, for one
        return refuse(409, f"the state cannot be read here: {type(error).__name__}: {error}")


def _states(manifest: Manifest, read: Read) -> Json:
    found = state_data.states_of(manifest, read)
    return {
        "states": [
            {"uid": uid, "name": name, "kind": kind, "internal": kind == ENGINE_UNION} for uid, name, kind in found
        ]
    }


def _entries(manifest: Manifest, uid: str, name: str, read: Read) -> Json:
    kind, found, more = state_data.sample(manifest, uid, name, read, MOST_ENTRIES)
    return {"uid": uid, "name": name, "kind": kind, "entries": [shown_entry(entry) for entry in found], "more": more}


def shown_entry(entry: StateEntry) -> Json:
    """An entry of state as text, cut to a length that people read."""
    key, key_cut = _cut(repr(entry.key), _SHORT)
    text, text_cut = _cut(repr(entry.value), _SHORT)
    return {
        "key": key,
        "namespace": None if entry.namespace is None else _cut(repr(entry.namespace), _SHORT)[0],
        "window": list(entry.namespace) if _is_time_window(entry.namespace) else None,
        "text": text,
        "shortened": key_cut or text_cut,
    }


def _is_time_window(namespace: Any) -> bool:
    return isinstance(namespace, tuple) and len(namespace) == 2 and all(type(end) is int for end in namespace)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
