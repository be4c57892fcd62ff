"""What a job keeps, to look at: which states there are, some entries of one, what one key has. All as of its newest checkpoint
or savepoint.

The driver answers while it lives: it has the program's classes. Of a job that has ended the files are read by whoever is
asked, which is enough where values are made of what Python and its libraries bring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from penstock.checkpoint import savepoint, state_data
from penstock.checkpoint.manifest import Manifest
from penstock.errors import PenstockError
from penstock.jobmanager.answers import Answer, refuse

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")
MOST_ENTRIES: Final = 50
_TEXT: Final = 10_000
_SHORT: Final = 300


def answer(facts: Callable[[], Json], what: str, query: Mapping[str, str]) -> Answer:
    """`what`: `states`, or `state` with `uid`, `name` and, for one key only, `key`. `facts` is asked again if a checkpoint is
    deleted while it is read: there is a newer one then."""
    if what == "states":
        return _reading(facts, _states)
    missing = [name for name in ("uid", "name") if name not in query]
    if missing:
        return refuse(400, f"missing query parameters: {', '.join(missing)}")
    uid, name = query["uid"], query["name"]
    if "key" not in query:
        return _reading(facts, lambda manifest: _entries(manifest, uid, name))
    try:
        key = parse_key(query["key"])
    except ValueError as error:
        return refuse(400, str(error))

    def one(manifest: Manifest) -> Json:
        value = state_data.query(manifest, uid, name, key, state_data.read_absolute)
        return {"uid": uid, "name": name, "key": query["key"], **shown(value)}

    return _reading(facts, one)


def parse_key(text: str) -> Any:
    """A key as people write it: JSON, a list stands for a tuple. ValueError, with how to write it."""
    try:
        return _tuples(json.loads(text))
    except ValueError:
        raise ValueError(
            f'key={text!r} is not JSON; write "user-1" with its quotes, 17, or [1, "a"] for a tuple'
        ) from None


def shown(value: Any) -> Json:
    """A value of the user's as JSON if it is JSON, else as Python writes it."""
    try:
        return {"value": json.loads(json.dumps(value)), "text": repr(value)[:_TEXT]}
    except (TypeError, ValueError):
        return {"value": None, "text": repr(value)[:_TEXT]}


def newest_path(facts: Json) -> str | None:
    kept = [c for c in facts["checkpoints"]["history"] if c["status"] == "COMPLETED" and c["path"] is not None]
    return str(max(kept, key=lambda c: c["ack_ms"])["path"]) if kept else None


def _reading(facts: Callable[[], Json], read: Callable[[Manifest], Json]) -> Answer:
    path, tried = newest_path(facts()), 0
    while path is not None:
        try:
            manifest = savepoint.load(path)
            return Answer(200, {"checkpoint": manifest.checkpoint_id, **read(manifest)})
        except PenstockError as error:
            newer, tried = newest_path(facts()), tried + 1
            if newer == path or tried == 3:
                return refuse(404, str(error))
            path = newer
        except Exception as error:  # a class of the program's that is not here, for one
            return refuse(409, f"the state in {path} cannot be read here: {type(error).__name__}: {error}")
    return Answer(200, {"checkpoint": None, "states": []}) if read is _states else refuse(404, _NONE)


_NONE: Final = "the job has no checkpoint with state in it (yet)"


def _states(manifest: Manifest) -> Json:
    found = state_data.states_of(manifest, state_data.read_absolute)
    return {"states": [{"uid": uid, "name": name, "kind": kind} for uid, name, kind in found]}


def _entries(manifest: Manifest, uid: str, name: str) -> Json:
    kind, found, more = state_data.sample(manifest, uid, name, state_data.read_absolute, MOST_ENTRIES)
    entries = [
        {
            "key": repr(entry.key)[:_SHORT],
            "namespace": None if entry.namespace is None else repr(entry.namespace)[:_SHORT],
            "window": list(entry.namespace) if _is_time_window(entry.namespace) else None,
            "text": repr(entry.value)[:_SHORT],
        }
        for entry in found
    ]
    return {"uid": uid, "name": name, "kind": kind, "entries": entries, "more": more}


def _is_time_window(namespace: Any) -> bool:
    return isinstance(namespace, tuple) and len(namespace) == 2 and all(type(end) is int for end in namespace)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
