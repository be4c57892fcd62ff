"""Committing, finding and subsuming checkpoints, with storage that fails at every call."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.checkpoint import layout, manifest_file
from penstock.checkpoint.manifest import FileState, InlineState, Manifest, TaskState
from penstock.checkpoint.storage import ObjectStorage, Storage
from penstock.checkpoint.store import AlreadyCommitted, CheckpointStore, Committed, Fenced, KeptAll, Subsumed
from penstock.errors import CorruptSnapshotError, FencedError, ProtocolError, StorageError
from penstock.protocol.ids import CheckpointId, Generation
from penstock.testing import FlakyStorage
from tests.checkpoint.permits import commit, started, subsume


class FailingStorage:
    """Passes calls on until call number `fail_at`, which fails before or after it took effect, as all later ones do."""

    def __init__(self, inner: Storage, *, fail_at: int, after_effect: bool) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.after_effect = after_effect
        self.calls = 0

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def fired(self) -> bool:
        return self.calls >= self.fail_at

    def _call(self, name: str, *args: Any) -> Any:
        self.calls += 1
        if self.calls < self.fail_at:
            return getattr(self.inner, name)(*args)
        if self.calls == self.fail_at and self.after_effect:
            getattr(self.inner, name)(*args)
        raise StorageError(f"injected failure of {name}{args[:1]}")

    def put(self, path: str, data: bytes) -> None:
        self._call("put", path, data)

    def put_new(self, path: str, data: bytes) -> bool:
        return bool(self._call("put_new", path, data))

    def get(self, path: str) -> bytes:
        return bytes(self._call("get", path))

    def exists(self, path: str) -> bool:
        return bool(self._call("exists", path))

    def list(self, prefix: str) -> list[str]:
        return list(self._call("list", prefix))

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return 0


@pytest.fixture
def storage() -> ObjectStorage:
    return fresh_storage()


def fresh_storage() -> ObjectStorage:
    return ObjectStorage(f"memory:///{uuid.uuid4().hex}")


def manifest(checkpoint: int, handles: Sequence[FileState | InlineState] = (), generation: int = 1) -> Manifest:
    return Manifest(
        job_id="j",
        job_name="job",
        checkpoint_id=CheckpointId(checkpoint),
        epoch=checkpoint,
        generation=Generation(generation),
        created_ms=1000,
        processing_time_ms=1000,
        max_parallelism=128,
        tasks=(TaskState(vertex="v", subtask=0, parallelism=1, handles=tuple(handles)),),
    )


def chain(store: CheckpointStore, count: int, *, full_every: int = 3, generation: int = 1) -> None:
    """`count` checkpoints, each a delta on those before it back to the last full one."""
    handles: list[FileState] = []
    for n in range(1, count + 1):
        if (n - 1) % full_every == 0:
            handles = []
        handles.append(store.write_state(n, layout.state_name("v", 0, f"a{n}"), b"state %d" % n))
        assert isinstance(commit(store, manifest(n, handles, generation)), Committed)


def assert_every_visible_checkpoint_is_whole(storage: Storage) -> None:
    store = CheckpointStore(storage, retained=1)
    for checkpoint in store.completed():
        store.verify(store.load(checkpoint))


def damage(storage: Storage, path: str) -> None:
    data = bytearray(storage.get(path))
    data[len(data) // 2] ^= 1
    storage.put(path, bytes(data))


class TestCommit:
    def test_the_manifest_makes_the_checkpoint(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        assert store.latest() is None
        assert commit(store, manifest(1)) == Committed(checkpoint_id=CheckpointId(1))
        assert store.latest() == manifest(1)
        assert store.completed() == [1]

    def test_the_identical_manifest_there_already_is_success(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        commit(store, manifest(1))
        assert commit(store, manifest(1)) == AlreadyCommitted(checkpoint_id=CheckpointId(1))

    def test_another_generations_manifest_fences(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        commit(store, manifest(1, generation=2))
        for late in (1, 3):
            outcome = commit(store, manifest(1, generation=late))
            assert outcome == Fenced(checkpoint_id=CheckpointId(1), by_generation=Generation(2))
        assert store.latest() == manifest(1, generation=2)

    def test_a_driver_that_was_replaced_cannot_commit_even_a_free_number(self, storage: ObjectStorage) -> None:
        storage.put_new(layout.generation(1), b"")
        storage.put_new(layout.generation(2), b"")
        store = CheckpointStore(storage, retained=1)
        assert commit(store, manifest(7)) == Fenced(checkpoint_id=CheckpointId(7), by_generation=Generation(2))
        assert store.completed() == []

    def test_other_content_by_the_same_generation_is_a_protocol_error(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        commit(store, manifest(1))
        with pytest.raises(ProtocolError, match="checkpoint 1 of generation 1"):
            commit(store, manifest(1, [InlineState(data=b"other")]))

    @pytest.mark.parametrize("after_effect", [False, True])
    def test_a_commit_that_failed_anywhere_is_whole_or_absent_and_can_be_retried(self, after_effect: bool) -> None:
        fired = 0
        for fail_at in range(1, 10):
            storage = fresh_storage()
            chain(CheckpointStore(storage, retained=2), 1)
            failing = FailingStorage(storage, fail_at=fail_at, after_effect=after_effect)
            with contextlib.suppress(StorageError):
                commit(CheckpointStore(failing, retained=2), manifest(2))
            assert_every_visible_checkpoint_is_whole(storage)
            outcome = commit(CheckpointStore(storage, retained=2), manifest(2))
            assert isinstance(outcome, Committed | AlreadyCommitted)
            assert CheckpointStore(storage, retained=2).latest() == manifest(2)
            fired += failing.fired
            if not failing.fired:
                break
        assert fired >= 2


class TestOrphans:
    """1 replaced by 2 while it was committing: 5(g1) - 8(g2) with a late 10(g1) above."""

    @pytest.fixture
    def store(self, storage: ObjectStorage) -> CheckpointStore:
        store = CheckpointStore(storage, retained=1)
        commit(store, manifest(5, generation=1))
        commit(store, manifest(8, generation=2))
        commit(store, manifest(10, generation=1))
        return store

    def test_an_orphan_is_not_resumed_from(self, store: CheckpointStore) -> None:
        latest = store.latest()
        assert latest is not None
        assert latest.checkpoint_id == 8

    def test_an_orphans_number_can_be_used_again(self, store: CheckpointStore) -> None:
        assert isinstance(commit(store, manifest(10, generation=3)), Committed)
        assert store.latest() == manifest(10, generation=3)

    def test_it_is_used_again_also_if_the_answer_to_that_was_lost_and_the_request_repeated(
        self, store: CheckpointStore
    ) -> None:
        class Repeated(FlakyStorage):
            def put_new(self, path: str, data: bytes) -> bool:
                return super().put_new(path, data) and super().put_new(path, data)

        store.storage = Repeated(store.storage, ())
        assert isinstance(commit(store, manifest(10, generation=3)), AlreadyCommitted)
        assert store.latest() == manifest(10, generation=3)

    def test_a_late_commit_below_everything_newer_is_the_one_to_start_from(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        commit(store, manifest(5, generation=1))
        commit(store, manifest(6, generation=1))  # after generation 2 had resumed from 5
        assert commit(store, manifest(6, generation=2)) == Fenced(
            checkpoint_id=CheckpointId(6), by_generation=Generation(1)
        )
        assert store.latest() == manifest(6, generation=1)


class TestFinding:
    def test_the_newest_is_the_highest_number(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=20)
        chain(store, 11)
        assert store.completed() == list(range(1, 12))
        latest = store.latest()
        assert latest is not None
        assert latest.checkpoint_id == 11

    def test_state_without_a_manifest_is_no_checkpoint(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        store.write_state(1, "v-0-a.state", b"x")
        assert store.completed() == []
        assert store.latest() is None

    def test_a_damaged_newest_manifest_is_an_error_that_names_it(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=3)
        chain(store, 3)
        damage(storage, layout.checkpoint_manifest(3))
        with pytest.raises(CorruptSnapshotError, match=r"checkpoints/chk-3/manifest\.json"):
            store.latest()

    @pytest.mark.parametrize("damaged", [layout.checkpoint_manifest(4), "checkpoints/chk-4/v-0-a4.state"])
    def test_falling_back_gives_the_next_older_and_names_the_problem(
        self, storage: ObjectStorage, damaged: str
    ) -> None:
        store = CheckpointStore(storage, retained=4)
        chain(store, 4)
        damage(storage, damaged)
        found = store.latest_readable(fall_back=True)
        assert found.manifest is not None
        assert found.manifest.checkpoint_id == 3
        (problem,) = found.problems
        assert damaged in problem

    def test_falling_back_skips_every_checkpoint_that_shares_a_lost_file(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=6)
        chain(store, 6)
        storage.delete("checkpoints/chk-4/v-0-a4.state")  # the full snapshot under 4, 5 and 6
        found = store.latest_readable(fall_back=True)
        assert found.manifest is not None
        assert found.manifest.checkpoint_id == 3
        assert len(found.problems) == 3

    def test_if_nothing_can_be_read_the_job_does_not_start_afresh(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=2)
        chain(store, 2)
        damage(storage, layout.checkpoint_manifest(1))
        damage(storage, layout.checkpoint_manifest(2))
        with pytest.raises(CorruptSnapshotError, match=r"none of the 2 .*chk-2.*chk-1"):
            store.latest_readable(fall_back=True)

    def test_a_manifest_in_anothers_place_is_refused(self, storage: ObjectStorage) -> None:
        storage.put(layout.checkpoint_manifest(2), manifest_file.encode(manifest(1)))
        with pytest.raises(CorruptSnapshotError, match=r"chk-2/manifest\.json: is the manifest of checkpoint 1"):
            CheckpointStore(storage, retained=1).load(2)

    def test_loading_what_is_not_there_says_what_is(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=2)
        chain(store, 2)
        with pytest.raises(CorruptSnapshotError, match=r"chk-7/manifest\.json.*\[1, 2\]"):
            store.load(7)


class TestState:
    def test_state_comes_back_whether_inline_or_in_a_file(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        assert store.read_state(store.write_state(1, "v-0-a.state", b"data")) == b"data"
        assert store.read_state(InlineState(data=b"inline")) == b"inline"

    def test_writing_the_same_again_is_success_and_other_bytes_are_fenced(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        first = store.write_state(1, "v-0-a.state", b"data")
        assert store.write_state(1, "v-0-a.state", b"data") == first
        with pytest.raises(FencedError, match=r"v-0-a\.state"):
            store.write_state(1, "v-0-a.state", b"late")
        assert store.read_state(first) == b"data"

    def test_a_zombies_late_upload_does_not_touch_its_successors(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        kept = store.write_state(1, layout.state_name("v", 0, "second"), b"right")
        late = store.write_state(1, layout.state_name("v", 0, "first"), b"wrong")
        assert late.path != kept.path
        assert store.read_state(kept) == b"right"

    @pytest.mark.parametrize(
        ("content", "found"),
        [(b"dat", "3 bytes instead of 4"), (b"dbta", "checksum"), (b"data+", "5 bytes"), (None, "missing")],
    )
    def test_a_damaged_state_file_is_named(self, storage: ObjectStorage, content: bytes | None, found: str) -> None:
        store = CheckpointStore(storage, retained=1)
        handle = store.write_state(1, "v-0-a.state", b"data")
        if content is None:
            storage.delete(handle.path)
        else:
            storage.put(handle.path, content)
        with pytest.raises(CorruptSnapshotError, match=rf"chk-1/v-0-a\.state: .*{found}"):
            store.read_state(handle)


class TestSubsume:
    def test_the_retained_stay_whole_and_what_they_do_not_need_goes(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=2)
        chain(store, 6)  # fulls at 1 and 4
        outcome = subsume(store)
        assert outcome == Subsumed(
            checkpoints=tuple(map(CheckpointId, (1, 2, 3, 4))),
            files=tuple(f"checkpoints/chk-{n}/v-0-a{n}.state" for n in (1, 2, 3)),
        )
        assert store.completed() == [5, 6]
        assert_every_visible_checkpoint_is_whole(storage)
        assert storage.exists("checkpoints/chk-4/v-0-a4.state")  # the full one under 5 and 6

    def test_it_can_be_repeated(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=2)
        chain(store, 6)
        subsume(store)
        before = storage.list("")
        assert subsume(store) == Subsumed()
        assert storage.list("") == before

    def test_an_empty_folder_has_nothing_to_subsume(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        store.write_state(1, "v-0-a.state", b"in progress")
        assert subsume(store) == Subsumed()
        assert storage.list("") == ["checkpoints/chk-1/v-0-a.state"]

    def test_failed_attempts_up_to_the_newest_go_and_those_in_progress_stay(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=5)
        chain(store, 2)
        store.write_state(2, "v-0-zombie.state", b"x")
        store.write_state(3, "v-0-next.state", b"x")
        assert subsume(store) == Subsumed(files=("checkpoints/chk-2/v-0-zombie.state",))
        assert storage.exists("checkpoints/chk-3/v-0-next.state")

    def test_files_it_does_not_know_stay(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        chain(store, 4)
        others = ["checkpoints/chk-1/notes.txt", "checkpoints/README", "savepoints/s/v-0-a.state", "epochs/1.json"]
        for path in others:
            storage.put(path, b"mine")
        subsume(store)
        assert all(storage.exists(path) for path in others)

    @pytest.mark.parametrize("damaged", [1, 4, 6])
    def test_malformed_metadata_deletes_nothing(self, storage: ObjectStorage, damaged: int) -> None:
        store = CheckpointStore(storage, retained=2)
        chain(store, 6)
        damage(storage, layout.checkpoint_manifest(damaged))
        before = storage.list("")
        outcome = subsume(store)
        assert isinstance(outcome, KeptAll)
        assert f"chk-{damaged}/manifest.json" in outcome.reason
        assert storage.list("") == before

    def test_a_replaced_driver_does_not_delete_its_successors_work_in_progress(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=1)
        chain(store, 3)
        storage.put_new(layout.generation(2), b"")  # resumed from 2, say, and is writing its own 3
        in_progress = store.write_state(3, "v-0-successor.state", b"x")
        assert store.subsume(started(storage, 1)) == KeptAll(
            reason="generation 2 has replaced 1: the checkpoints are its"
        )
        assert store.subsume(started(storage, 2)) == KeptAll(reason="generation 2 has not completed a checkpoint yet")
        assert store.read_state(in_progress) == b"x"

    def test_an_orphan_is_not_retained_in_place_of_a_real_one(self, storage: ObjectStorage) -> None:
        store = CheckpointStore(storage, retained=2)
        for n, generation in ((5, 1), (8, 2), (10, 1), (12, 2)):
            commit(store, manifest(n, generation=generation))
        subsume(store)
        assert store.completed() == [8, 12]

    @pytest.mark.parametrize("after_effect", [False, True])
    def test_a_failure_at_any_call_leaves_every_visible_checkpoint_whole_and_the_next_call_finishes(
        self, after_effect: bool
    ) -> None:
        reference = fresh_storage()
        chain(CheckpointStore(reference, retained=2), 6)
        subsume(CheckpointStore(reference, retained=2))
        expected = reference.list("")
        fired = 0
        for fail_at in range(1, 100):
            storage = fresh_storage()
            chain(CheckpointStore(storage, retained=2), 6)
            failing = FailingStorage(storage, fail_at=fail_at, after_effect=after_effect)
            if not _fails(CheckpointStore(failing, retained=2)):
                break
            fired += failing.fired
            assert_every_visible_checkpoint_is_whole(storage)
            assert {5, 6} <= set(CheckpointStore(storage, retained=2).completed())
            subsume(CheckpointStore(storage, retained=2))
            assert storage.list("") == expected
        assert fired == fail_at - 1 >= 15  # two lists, six loads, seven deletions


def _fails(store: CheckpointStore) -> bool:
    try:
        subsume(store)
    except StorageError:
        return True
    return False


def test_retaining_nothing_is_refused(storage: ObjectStorage) -> None:
    with pytest.raises(ValueError, match="at least one"):
        CheckpointStore(storage, retained=0)


def test_a_manifest_is_decoded_once_as_long_as_its_file_stays_what_it_was(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(storage, retained=3)
    for checkpoint in (1, 2):
        commit(store, manifest(checkpoint))
    decoded: list[str] = []
    decode = manifest_file.decode

    def counted(data: bytes, *, source: str) -> Manifest:
        decoded.append(source)
        return decode(data, source=source)

    monkeypatch.setattr(manifest_file, "decode", counted)
    for _ in range(3):
        subsume(store)
    assert len(decoded) == 2
    storage.put(layout.checkpoint_manifest(1), b"{ damaged")
    with pytest.raises(CorruptSnapshotError, match="chk-1"):
        store.load(1)
    storage.put(layout.checkpoint_manifest(1), manifest_file.encode(manifest(1, generation=7)))
    assert store.load(1).generation == 7
