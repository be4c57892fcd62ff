"""From the files of a checkpoint to the contents one subtask needs: same parallelism, or another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from penstock.checkpoint.manifest import FileState, Manifest, StateHandle, TaskState
from penstock.errors import StorageError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.protocol.ids import TaskId
from penstock.protocol.input_facts import Lineage, is_of
from penstock.state import snapshot_file
from penstock.state.operator_lists import ENGINE_UNION, OPERATOR_KINDS, UNION, Dealer
from penstock.state.snapshot import SnapshotContents
from penstock.state.snapshot_file import TableDelta

_AHEAD_BYTES: Final = 64 << 20
_CHANNEL_KIND = "channel"  # a table of its own: number on the way → (channel, event)


def encode_contents(contents: SnapshotContents, compression: str | None = None) -> bytes:
    """The contents of a snapshot as the bytes of a file."""
    meta: dict[str, Any] = {"gate": contents.gate, "finished": contents.finished, "full": contents.full}
    tables = contents.tables
    if contents.channel_state:
        count = len(contents.channel_state)
        channels = TableDelta(
            operator="",
            name="channels",
            kind=_CHANNEL_KIND,
            full=True,
            key_groups=[0] * count,
            keys=list(range(count)),
            namespaces=[channel for channel, _ in contents.channel_state],
            values=[event for _, event in contents.channel_state],
        )
        tables = [*tables, channels]
    return snapshot_file.encode(tables, meta=meta, compression=compression)


def decode_contents(data: bytes, source: str) -> SnapshotContents:
    """Reads what `encode_contents` wrote; `source` names the file in errors. Keyed state stays in columns until somebody looks."""
    meta, tables = snapshot_file.decode_columns(data, source=source)
    tables = [table.decoded() if table.kind in OPERATOR_KINDS else table for table in tables]
    return SnapshotContents(
        tables=[table for table in tables if table.kind != _CHANNEL_KIND],
        gate=meta["gate"],
        channel_state=[
            (channel, event)
            for table in tables
            if table.kind == _CHANNEL_KIND
            for channel, event in zip(table.namespaces or (), table.values, strict=True)
        ],
        finished=bool(meta["finished"]),
        full=bool(meta["full"]),
    )


def contents_of(
    manifest: Manifest, graph: ExecutionGraph, task: TaskId, read: Callable[[StateHandle], bytes], *, readers: int = 1
) -> Iterator[SnapshotContents]:
    """`contents_for` a task of a job."""
    vertex = graph.vertex(task)
    return contents_for(
        manifest,
        state_id=vertex.state_id,
        operators=[node.operator_id for node in vertex.nodes],
        subtask=task.subtask,
        parallelism=vertex.parallelism,
        lineage=graph.lineage(vertex.id),
        read=read,
        readers=readers,
    )


def contents_for(
    manifest: Manifest,
    *,
    state_id: str,
    operators: Iterable[str],
    subtask: int,
    parallelism: int,
    lineage: Lineage,
    read: Callable[[StateHandle], bytes],
    readers: int = 1,
) -> Iterator[SnapshotContents]:
    """The snapshots a subtask restores from, oldest first per old subtask. `operators` are those of its vertex: they may
    have been chained otherwise when the checkpoint was taken.

    With unchanged parallelism only its own files are read, and the others' if there are union lists or if its senders are not
    who they were: then it must know how far event time was in each of them. Otherwise all of the vertex's: keyed entries
    are filtered by key group when they are loaded, list state is dealt out element by element, union state goes to everyone, and
    who reads it finds out which of the records that were on the way are its own (`moved_from`).
    """
    operators = list(operators)
    mine = _tasks_of(manifest, state_id, set(operators))
    same = [t for t in mine if t.vertex == state_id and t.parallelism == parallelism and t.subtask == subtask]
    if same and all(t.vertex == state_id for t in mine):
        last: SnapshotContents | None = None
        for contents in chain_contents(same[0], read, readers):
            if last is not None:
                yield last
            last = contents
        union = last is not None and any(table.kind == UNION for table in last.tables)
        changed = last is not None and last.gate is not None and not is_of(last.gate, lineage)
        for task in mine if union or changed else same:  # in the same order for everyone
            if task is not same[0]:
                yield from (_shared(contents, changed) for contents in chain_contents(task, read, readers))
            elif last is not None:
                yield last
        return
    dealer = Dealer(subtask, parallelism)
    for task in mine:
        for contents in chain_contents(task, read, readers):
            if contents.channel_state and (task.operators or ())[:1] != tuple(operators[:1]):
                raise StorageError(
                    f"checkpoint {manifest.checkpoint_id} holds {len(contents.channel_state)} events that were on the way to "
                    f"{task.vertex}/{task.subtask} (it is unaligned), and that vertex begins with another operator now or is gone: "
                    "resume with the same chains, take a savepoint, and go on from that one"
                )
            yield replace(contents, tables=dealer.share(task.subtask, contents.tables), moved_from=task.subtask)


def _tasks_of(manifest: Manifest, state_id: str, operators: set[str]) -> list[TaskState]:
    """The tasks, of whichever vertex, that hold state of these operators."""
    if all(task.operators is not None for task in manifest.tasks):
        return [task for task in manifest.tasks if operators & set(task.operators or ())]
    return [t for t in manifest.tasks if t.vertex == state_id] or list(manifest.tasks)


def chain_contents(
    task: TaskState, read: Callable[[StateHandle], bytes], readers: int = 1
) -> Iterator[SnapshotContents]:
    """A full snapshot and its deltas, one file at a time: the state may be larger than memory. Of each operator list the
    newest counts, and comes with the last file; of the gate and the channels the last. `readers`: `read` may be called from so
    many threads at once."""
    lists: dict[tuple[str, str], TableDelta] = {}
    for index, (handle, data) in enumerate(_read_ahead(task.handles, read, readers)):
        source = (
            handle.path if isinstance(handle, FileState) else f"manifest (inline state of {task.vertex}/{task.subtask})"
        )
        contents = decode_contents(data, source)
        for table in contents.tables:
            if table.kind in OPERATOR_KINDS:
                lists[table.operator, table.name] = table
        contents.tables = [table for table in contents.tables if table.kind not in OPERATOR_KINDS]
        if index == len(task.handles) - 1:
            contents.tables += lists.values()
        else:
            contents.gate = None
            contents.channel_state = []
        yield contents


def _read_ahead(
    handles: Sequence[StateHandle], read: Callable[[StateHandle], bytes], readers: int
) -> Iterator[tuple[StateHandle, bytes]]:
    """Every file, in order, while the next ones are fetched: as many as there are readers, and no more than so many bytes."""
    if readers == 1 or sum(not handle.inline for handle in handles) < 2:
        yield from ((handle, read(handle)) for handle in handles)
        return
    with ThreadPoolExecutor(readers, "penstock-restore") as pool:
        coming: deque[tuple[StateHandle, Future[bytes]]] = deque()
        try:
            for handle in handles:
                while coming and (len(coming) > readers or _size(handle, coming) > _AHEAD_BYTES):
                    first, data = coming.popleft()
                    yield first, data.result()
                coming.append((handle, pool.submit(read, handle)))
            while coming:
                first, data = coming.popleft()
                yield first, data.result()
        finally:
            for _, data in coming:
                data.cancel()


def _size(handle: StateHandle, coming: Iterable[tuple[StateHandle, Any]]) -> int:
    return handle.size + sum(one.size for one, _ in coming)


def _shared(contents: SnapshotContents, changed: bool) -> SnapshotContents:
    """What concerns everyone of another subtask: its part of the union lists; where senders changed also its event time."""
    kinds = (UNION, ENGINE_UNION) if changed else (UNION,)
    return SnapshotContents(
        tables=[table for table in contents.tables if table.kind in kinds],
        gate=contents.gate if changed else None,
        finished=changed and contents.finished,
    )
