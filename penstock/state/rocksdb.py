"""The RocksDB backend: confirmed entries on local disk, for state that is larger than memory.

One database a subtask, opened at the first write and deleted with the subtask: checkpoints are the truth, so there is no
write-ahead log and nothing is ever recovered from the folder. All databases of a process share one block cache, to which
write buffers are charged: that bounds their memory together.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import shutil
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.values import is_immutable
from penstock.errors import ConfigurationError, StorageError
from penstock.pickling import dump_by_value
from penstock.state import rocksdb_keys
from penstock.state.backends import Folder, RocksDBSettings, StateSettings
from penstock.state.keyspace import Shape, StoredBase
from penstock.state.overlay import MISSING, TOMBSTONE

if TYPE_CHECKING:
    from rocksdict import Cache, Rdict, RdictIter, ReadOptions, WriteBatch, WriteBufferManager

_BATCH = 10_000  # entries of one write
_BLOCK_BYTES = 16 << 10


def library() -> Any:
    """The package rocksdict; ConfigurationError if it is not installed."""
    try:
        import rocksdict
    except ImportError as error:
        raise ConfigurationError(
            "state.backend.type is rocksdb, but the package rocksdict is not installed here: "
            "pip install 'penstock[rocksdb]' where the driver and the executors run, or choose hashmap"
        ) from error
    return rocksdict


@functools.lru_cache(maxsize=8)
def _memory(settings: RocksDBSettings) -> tuple[Cache, WriteBufferManager]:
    """Shared by all databases of the process."""
    rocksdict = library()
    cache = rocksdict.Cache(settings.memory_bytes)
    buffers = int(settings.memory_bytes * settings.write_buffer_ratio)
    manager = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(buffers, False, cache)
    return cache, manager


class RocksDBKeyspace:
    """One subtask's database. Single-threaded, except that what was frozen may be read by another thread."""

    on_disk = True

    def __init__(
        self,
        max_parallelism: int,
        settings: RocksDBSettings | None = None,
        parent: Callable[[], Path | None] = lambda: None,
    ) -> None:
        self._max_parallelism = max_parallelism
        self.settings = settings or RocksDBSettings()
        self._parent = parent
        self.folder: Path | None = None
        self._db: Rdict | None = None
        self._tables: list[RocksDBBase] = []
        self._closed = False

    def base(self, operator: str, name: str, shape: Shape) -> RocksDBBase:
        """A new table, with a prefix of its own in the database."""
        prefix = len(self._tables).to_bytes(2, "big")
        kind = RocksDBMaps if shape.is_map else RocksDBTimers if shape is Shape.TIMERS else RocksDBBase
        table = kind(self, f"state {name!r} of operator {operator!r}", shape, prefix, self._max_parallelism)
        self._tables.append(table)
        return table

    @property
    def db(self) -> Rdict | None:
        """None until something was written: a subtask without state has no database."""
        return self._db

    def opened(self) -> Rdict:
        """The database; the first call creates it. StorageError after `close`."""
        if self._db is None:
            if self._closed:
                raise StorageError("this state was closed with its subtask and cannot be written any more")
            self.folder = Path(tempfile.mkdtemp(prefix="state-", dir=self._parent()))
            self._db = _open(self.folder, self.settings)
        return self._db

    def entries(self) -> int:
        """RocksDB's estimate: exact after compaction, else entries that were written twice may count twice."""
        if self._db is None:
            return 0
        return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def close(self) -> None:
        """Closes the database and deletes its files: checkpoints hold what counts."""
        self._closed = True
        for table in self._tables:
            table.forget()
        db, self._db = self._db, None
        if db is not None:
            # It flushes first, to files that go with the folder: a full disk or a damaged file is no trouble any more.
            with contextlib.suppress(Exception):
                db.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the process anything may be gone already
            self.close()


def _open(folder: Path, settings: RocksDBSettings) -> Rdict:
    rocksdict = library()
    cache, manager = _memory(settings)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(_BLOCK_BYTES)
    table.set_cache_index_and_filter_blocks(True)  # else their memory grows with the state, outside of the bound
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10.0, False)
    table.set_format_version(5)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(manager)
    options.set_write_buffer_size(max(1 << 20, manager.get_buffer_size() // 4))
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(settings.background_threads)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_compression_type(getattr(rocksdict.DBCompressionType, settings.compression)())
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    try:
        db: Rdict = rocksdict.Rdict(str(folder), options)
    except Exception as error:
        raise StorageError(
            f"cannot open a RocksDB database in {folder}: {error}; is the disk full, or the folder gone? "
            "state.backend.rocksdb.localdir chooses another"
        ) from error
    unlogged = rocksdict.WriteOptions()
    unlogged.disable_wal = True
    db.set_write_options(unlogged)
    return db


class RocksDBBase(StoredBase):
    """Confirmed entries of one table. Values that cannot be changed in place are also kept decoded, a few of them."""

    def __init__(
        self, keyspace: RocksDBKeyspace, title: str, shape: Shape, prefix: bytes, max_parallelism: int
    ) -> None:
        self._keyspace, self._title, self.prefix, self._shape = keyspace, title, prefix, shape
        self._max_parallelism = max_parallelism
        self._encode = rocksdb_keys.encoder(shape, prefix, max_parallelism)
        self._cache: dict[Any, Any] = {}
        self._cached_objects = keyspace.settings.cached_objects
        self._loading: WriteBatch | None = None

    # ---------------------------------------------------------------- reading

    def get(self, entry: Any, default: Any = None) -> Any:
        value = self._cache.get(entry, MISSING)
        if value is not MISSING:
            return value
        db = self._keyspace.db
        if db is None:
            return default
        data = self._read(db, entry)
        if data is None:
            return default
        value = self._decode(data)[1]
        if is_immutable(value):
            if len(self._cache) >= self._cached_objects:
                self._cache.clear()
            self._cache[entry] = value
        return value

    def __contains__(self, entry: Any) -> bool:
        db = self._keyspace.db
        return entry in self._cache or (db is not None and self._read(db, entry) is not None)

    def _read(self, db: Rdict, entry: Any) -> bytes | None:
        key = self._encode(entry)
        try:
            data: bytes | None = db.get(key)
        except Exception as error:
            raise self._unreadable(error) from error
        return data

    def __getitem__(self, entry: Any) -> Any:
        value = self.get(entry, MISSING)
        if value is MISSING:
            raise KeyError(entry)
        return value

    def items(self) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        """Not a view, as a dict's: nothing is held in memory."""
        return self._scan(self.prefix)

    def __iter__(self) -> Iterator[Any]:
        return (entry for entry, _ in self.items())

    def __len__(self) -> int:
        """Counts: for tests and for tables known to be small."""
        return sum(1 for _ in self.items())

    def _scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[Any, Any]]:
        """Entries whose keys begin with `prefix`, as they are when the first is asked for, whatever is written later."""
        yield from self._pinned(prefix, start)

    def freeze(self) -> Iterator[tuple[Any, Any]]:
        """All entries as they are now, for another thread to read while new ones are written."""
        return self._pinned(self.prefix)

    def _pinned(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[Any, Any]]:
        """Like every iterator of RocksDB it pins, here and now, the files it was made over (rocksdict's own Snapshot objects
        see later writes)."""
        db = self._keyspace.db
        if db is None:
            return iter(())
        options = library().ReadOptions()  # whose default is to verify the checksum of every block
        options.set_iterate_upper_bound(rocksdb_keys.after(prefix))
        options.fill_cache(False)
        cursor = db.iter(options)
        cursor.seek(start or prefix)
        return self._walk(cursor, options)

    def _walk(self, cursor: RdictIter, options: ReadOptions) -> Iterator[tuple[Any, Any]]:
        """To the end of the range, and whether that is what it was: a cursor that comes to a damaged or unreadable block
        merely stops. (rocksdict's `items` never asks, so a scan would be short without a word.) `options` is here to live as
        long as the cursor, which refers to it."""
        value, step = cursor.value, cursor.next
        while (data := value()) is not None:
            yield self._decode(data)
            step()
        try:
            cursor.status()
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> StorageError:
        return StorageError(
            f"{self._title} cannot be read from RocksDB in {self._keyspace.folder}: {error}; working state is made anew from the "
            "last checkpoint. If it happens again, look after that disk; state.backend.rocksdb.localdir chooses another"
        )

    def _decode(self, data: bytes) -> tuple[Any, Any]:
        decoded: tuple[Any, Any] = pickle.loads(data)
        return decoded

    # ---------------------------------------------------------------- writing

    def apply(self, changes: Mapping[Any, Any]) -> None:
        batch = self._batch()
        encode, cache = self._encode, self._cache
        for entry, value in changes.items():
            if value is TOMBSTONE:
                batch.delete(encode(entry))
                cache.pop(entry, None)
                continue
            batch.put(encode(entry), self._dump(entry, value))
            if entry in cache:
                if is_immutable(value):
                    cache[entry] = value
                else:
                    del cache[entry]
            if len(batch) >= _BATCH:
                self._write(batch)
                batch = self._batch()
        self._write(batch)

    def __setitem__(self, entry: Any, value: Any) -> None:
        """Restore: gathered, and to be read only after `settle`."""
        self._load(entry, value)

    def __delitem__(self, entry: Any) -> None:
        self._load(entry, TOMBSTONE)

    def pop(self, entry: Any, default: Any = None) -> Any:
        self._load(entry, TOMBSTONE)
        return default

    def _load(self, entry: Any, value: Any) -> None:
        batch = self._loading
        if batch is None:
            batch = self._loading = self._batch()
        if value is TOMBSTONE:
            batch.delete(self._encode(entry))
        else:
            batch.put(self._encode(entry), self._dump(entry, value))
        if len(batch) >= _BATCH:
            self.settle()

    def settle(self) -> None:
        batch, self._loading = self._loading, None
        if batch is not None:
            self._cache.clear()
            self._write(batch)

    def forget(self) -> None:
        """Drops decoded values and what is being loaded."""
        self._cache.clear()
        self._loading = None

    def _batch(self) -> WriteBatch:
        batch: WriteBatch = library().WriteBatch(raw_mode=True)
        return batch

    def _write(self, batch: WriteBatch) -> None:
        if len(batch):
            try:
                self._keyspace.opened().write(batch)
            except StorageError:
                raise
            except Exception as error:
                raise StorageError(
                    f"{self._title} cannot be written to RocksDB in {self._keyspace.folder}: {error}; is the disk full, or broken?"
                ) from error

    def _dump(self, entry: Any, value: Any) -> bytes:
        try:
            return dump_by_value((entry, value))
        except Exception as error:
            raise StorageError(
                f"{self._title} cannot be kept in RocksDB: a value of type {type(value).__qualname__} cannot be pickled "
                f"({error}); keep connections, locks and generators out of state and store plain data"
            ) from error


class RocksDBMaps(RocksDBBase):
    """Entries of maps; those of one map are neighbours."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._map_prefix = rocksdb_keys.map_prefix(self._shape, self.prefix, self._max_parallelism)

    def scan(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        """The keys and values of one map."""
        self.settle()
        for (_, key), value in self._scan(self._map_prefix(entry)):
            yield key, value


class RocksDBTimers(RocksDBBase):
    """Timers, by time."""

    @property
    def head(self) -> int:
        """How many timers are kept in memory."""
        return self._keyspace.settings.timer_head

    def after(self, timestamp: int | None) -> Iterator[tuple[Any, Any, int]]:
        """The timers later than `timestamp` (None: all), in the order of time."""
        self.settle()
        start = None if timestamp is None else rocksdb_keys.after(self.prefix + rocksdb_keys.time_bytes(timestamp))
        return (timer for timer, _ in self._scan(self.prefix, start))


def rocksdb_keyspaces(settings: StateSettings, max_parallelism: int, folder: Folder) -> Callable[[], RocksDBKeyspace]:
    """The factory of the backend `rocksdb`."""
    library()
    return lambda: RocksDBKeyspace(max_parallelism, settings.rocksdb, folder)
