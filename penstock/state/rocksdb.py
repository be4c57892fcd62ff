"""The RocksDB backend: confirmed entries on local disk, for state that is larger than memory.

One database a subtask, opened at the first write and deleted with the subtask: checkpoints are the truth, so there is no
write-ahead log and nothing is ever recovered from the folder. All databases of a process share one block cache, to which
write buffers are charged: that bounds their memory together.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.values import is_immutable
from penstock.errors import ConfigurationError, StorageError
from penstock.state import rocksdb_keys
from penstock.state.backends import Folder, RocksDBSettings, StateSettings
from penstock.state.keys import canonical
from penstock.state.keyspace import ColumnarBase, EntryColumns, Shape
from penstock.state.overlay import MISSING, TOMBSTONE
from penstock.state.rocksdb_rows import RowFormat
from penstock.state.snapshot_file import StoredColumn

if TYPE_CHECKING:
    from rocksdict import Cache, Options, Rdict, RdictIter, ReadOptions, SstFileWriter, WriteBatch, WriteBufferManager

_BATCH = 10_000  # entries of one write
_SLICE = 100_000  # entries of a restore that are rows at one time, or so many bytes
_SLICE_BYTES = 32 << 20
_MANY = 200  # entries of a write that are encoded as columns
_FILE = 20_000  # so many entries of a restore are written as a file of RocksDB's
_FILE_BYTES = 64 << 20
_BLOCK = 1_000  # entries of a scan whose bytes are counted together
_READ_AHEAD = 2 << 20  # bytes of a scan
_AHEAD_BYTES = 16 << 20  # of the rows of a block's keys
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


@functools.lru_cache(maxsize=8)
def _options(settings: RocksDBSettings) -> Options:
    """Of databases, and of the files that are made for them."""
    rocksdict = library()
    cache, manager = _memory(settings)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(_BLOCK_BYTES)
    table.set_cache_index_and_filter_blocks(True)  # else their memory grows with the state, outside of the bound
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10.0, False)
    # Of a large file a read needs a few kB of index and filter; whole, they would push each other out of a small cache.
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_format_version(5)
    options: Options = rocksdict.Options(raw_mode=True)
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
    return options


def _open(folder: Path, settings: RocksDBSettings) -> Rdict:
    rocksdict = library()
    try:
        db: Rdict = rocksdict.Rdict(str(folder), _options(settings))
    except Exception as error:
        raise StorageError(
            f"cannot open a RocksDB database in {folder}: {error}; is the disk full, or the folder gone? "
            "state.backend.rocksdb.localdir chooses another"
        ) from error
    unlogged = rocksdict.WriteOptions()
    unlogged.disable_wal = True
    db.set_write_options(unlogged)
    return db


class RocksDBBase(ColumnarBase):
    """Confirmed entries of one table. Values that cannot be changed in place are also kept decoded, a few of them."""

    def __init__(
        self, keyspace: RocksDBKeyspace, title: str, shape: Shape, prefix: bytes, max_parallelism: int
    ) -> None:
        self._keyspace, self._title, self.prefix, self._shape = keyspace, title, prefix, shape
        self._max_parallelism = max_parallelism
        self._encode = rocksdb_keys.encoder(shape, prefix, max_parallelism)
        self._format = RowFormat(shape)
        self._group = rocksdb_keys.group_place(shape)
        self._cache: dict[Any, Any] = {}
        self._cached_objects = keyspace.settings.cached_objects
        self._encode_columns = rocksdb_keys.column_encoder(shape, prefix, max_parallelism)
        self._ahead: dict[Any, bytes | None] = {}  # rows of the keys of a block, read in one go
        self._asked = 0  # how often something was read that the cache did not have, since the last block
        self._loading: WriteBatch | None = None
        self._file: _File | None = None

    # ---------------------------------------------------------------- reading

    def get(self, entry: Any, default: Any = None) -> Any:
        value = self._cache.get(entry, MISSING)
        if value is not MISSING:
            return value
        db = self._keyspace.db
        if db is None:
            return default
        self._asked += 1
        data = self._ahead.get(entry, MISSING) if self._ahead else MISSING
        if data is MISSING:
            data = self._read(db, entry)
        if data is None:
            return default
        value = self._format.value(data)
        if is_immutable(value):
            if len(self._cache) >= self._cached_objects:
                self._cache.clear()
            self._cache[entry] = value
        return value

    def read_ahead(self, entries: Iterable[Any]) -> None:
        db, asked, self._asked = self._keyspace.db, self._asked, 0
        self._ahead = {}
        wanted = [entry for entry in dict.fromkeys(entries) if entry not in self._cache]
        if db is None or asked * 2 < len(wanted):
            return  # hardly anything was asked for that the cache did not have: nor will it be now
        left = _AHEAD_BYTES
        for start in range(0, len(wanted), _BLOCK):
            some = wanted[start : start + _BLOCK]
            keys: Any = list(map(self._encode, some))
            try:
                rows: Any = db.get(keys)
            except Exception as error:
                raise self._unreadable(error) from error
            self._ahead.update(zip(some, rows, strict=True))
            left -= sum(len(row) for row in rows if row is not None)
            if left < 0:
                break  # the others are read one by one

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

    def freeze_columns(self, entries: int) -> Iterator[EntryColumns]:
        """The same as columns, of so many entries each or fewer."""
        rows = self._pinned_rows(self.prefix)

        def cut() -> Iterator[EntryColumns]:
            while some := _gathered(rows, entries, _SLICE_BYTES):
                yield self._format.columns(some)

        return cut()

    def _pinned(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[Any, Any]]:
        return map(self._format.entry, self._pinned_rows(prefix, start))

    def _pinned_rows(self, prefix: bytes, start: bytes | None = None) -> Iterator[bytes]:
        """Like every iterator of RocksDB it pins, here and now, the files it was made over (rocksdict's own Snapshot objects
        see later writes)."""
        db = self._keyspace.db
        if db is None:
            return iter(())
        options = library().ReadOptions()  # whose default is to verify the checksum of every block
        options.set_iterate_upper_bound(rocksdb_keys.after(prefix))
        options.fill_cache(False)
        if prefix == self.prefix:
            options.set_readahead_size(_READ_AHEAD)
        cursor = db.iter(options)
        cursor.seek(start or prefix)
        return self._walk(cursor, options)

    def _walk(self, cursor: RdictIter, options: ReadOptions) -> Iterator[bytes]:
        """To the end of the range, and whether that is what it was: a cursor that comes to a damaged or unreadable block
        merely stops. (rocksdict's `items` never asks, so a scan would be short without a word.) `options` is here to live as
        long as the cursor, which refers to it."""
        value, step = cursor.value, cursor.next
        while (data := value()) is not None:
            yield data
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

    # ---------------------------------------------------------------- writing

    def apply(self, changes: Mapping[Any, Any]) -> None:
        cache, self._ahead = self._cache, {}
        for entry in cache.keys() & changes.keys():
            value = changes[entry]
            if value is TOMBSTONE or not is_immutable(value):
                del cache[entry]
            else:
                cache[entry] = value
        entries = iter(changes.items())
        while some := list(itertools.islice(entries, _BATCH)):
            self._write(self._batch_of(some))

    def _batch_of(self, changes: list[tuple[Any, Any]]) -> WriteBatch:
        batch, encode = self._batch(), self._encode
        live = [change for change in changes if change[1] is not TOMBSTONE]
        if len(live) < len(changes):
            for entry, value in changes:
                if value is TOMBSTONE:
                    batch.delete(encode(entry))
        if len(live) >= _MANY and self._shape not in (Shape.TIMERS, Shape.BLOCKS):
            try:
                parts = self._format.parts([entry for entry, _ in live], [value for _, value in live])
            except Exception:
                parts = []  # what cannot be pickled is found again, and named, below
            if parts:
                keys, groups, parts = self._encode_columns(None, parts)
                _each(batch.put, keys.to_pylist(), self._format.rows(parts, groups).to_pylist())
                return batch
        for entry, value in live:
            key = encode(entry)
            batch.put(key, self._row(entry, value, key))
        return batch

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
            self.settle()
            batch = self._loading = self._batch()
        if value is TOMBSTONE:
            batch.delete(self._encode(entry))
        else:
            key = self._encode(entry)
            batch.put(key, self._row(entry, value, key))
        if len(batch) >= _BATCH:
            self.settle()

    def settle(self) -> None:
        self._ahead = {}
        batch, self._loading = self._loading, None
        if batch is not None:
            self._cache.clear()
            self._write(batch)
        file, self._file = self._file, None
        if file is not None:
            with self._writing():
                file.ingest()

    def forget(self) -> None:
        """Drops decoded values and what is being loaded."""
        self._cache.clear()
        self._ahead = {}
        self._loading = self._file = None

    def _batch(self) -> WriteBatch:
        batch: WriteBatch = library().WriteBatch(raw_mode=True)
        return batch

    def _write(self, batch: WriteBatch) -> None:
        if len(batch):
            with self._writing():
                self._keyspace.opened().write(batch)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            raise StorageError(
                f"{self._title} cannot be written to RocksDB in {self._keyspace.folder}: {error}; is the disk full, or broken?"
            ) from error

    def _row(self, entry: Any, value: Any, key: bytes) -> bytes:
        try:
            return self._format.encode(entry, value, key[self._group])
        except Exception as error:
            raise StorageError(
                f"{self._title} cannot be kept in RocksDB: a value of type {type(value).__qualname__} cannot be pickled "
                f"({error}); keep connections, locks and generators out of state and store plain data"
            ) from error

    # ---------------------------------------------------------------- a restore, by columns

    def load_columns(self, groups: Any, parts: list[StoredColumn], deleted: Sequence[bool] | None) -> None:
        """Restore many entries: values, keys, and what the shape has beside them. What an earlier file had is overwritten."""
        self._cache.clear()
        for part in parts:
            part.chosen(
                slice(0, 1)
            ).objects()  # one that cannot be rebuilt is an error of the restore, not of whoever reads it
        gone = None if deleted is None else np.asarray(deleted, np.bool_)
        step = _slice(parts)
        for start in range(0, len(groups), step):
            chosen = slice(start, start + step)
            keys, groups_here, here = self._encode_columns(groups[chosen], [part.chosen(chosen) for part in parts])
            rows = self._format.rows(here, groups_here)
            if gone is None and len(keys) >= _FILE:
                self._append(keys, rows)
            else:
                self._put(keys.to_pylist(), rows.to_pylist(), None if gone is None else gone[chosen].tolist())

    def _put(self, keys: list[bytes], rows: list[bytes], gone: list[bool] | None) -> None:
        self.settle()
        for start in range(0, len(keys), _BATCH):
            end, batch = start + _BATCH, self._batch()
            if gone is None:
                _each(batch.put, keys[start:end], rows[start:end])
            else:
                for key, row, away in zip(keys[start:end], rows[start:end], gone[start:end], strict=True):
                    if away:
                        batch.delete(key)
                    else:
                        batch.put(key, row)
            self._write(batch)

    def _append(self, keys: pa.LargeBinaryArray, rows: pa.LargeBinaryArray) -> None:
        """As a file of RocksDB's, which needs neither its buffers nor compaction. One goes on while keys come in order, as they
        do out of RocksDB."""
        if not _ascending(keys):
            order = pc.sort_indices(keys)
            keys, rows = keys.take(order), rows.take(order)
            if not _ascending(keys):  # some are equal: the last counts
                places = pc.sort_indices(order)
                self._put(keys.take(places).to_pylist(), rows.take(places).to_pylist(), None)
                return
        first, last = keys[0].as_py(), keys[-1].as_py()
        if self._file is None or first <= self._file.last or self._file.size() >= _FILE_BYTES:
            self.settle()
            with self._writing():
                self._file = _File(self._keyspace)
        with self._writing():
            self._file.write(keys.to_pylist(), rows.to_pylist(), last)


class _File:
    """A file of RocksDB's with entries in the order of their keys."""

    def __init__(self, keyspace: RocksDBKeyspace) -> None:
        keyspace.opened()
        assert keyspace.folder is not None
        self._path = keyspace.folder / f"restored-{uuid.uuid4().hex}"
        self._keyspace = keyspace
        self._writer: SstFileWriter = library().SstFileWriter(_options(keyspace.settings))
        self._writer.open(str(self._path))
        self.last = b""

    def size(self) -> int:
        """Bytes written so far."""
        return int(self._writer.file_size())

    def write(self, keys: list[bytes], rows: list[bytes], last: bytes) -> None:
        """Adds entries behind those that there are."""
        _each(self._writer.__setitem__, keys, rows)
        self.last = last

    def ingest(self) -> None:
        """Its entries are the database's now."""
        self._writer.finish()
        options = library().IngestExternalFileOptions()
        options.set_move_files(True)
        self._keyspace.opened().ingest_external_file([str(self._path)], options)
        self._path.unlink(missing_ok=True)


def _each(call: Callable[[bytes, bytes], object], keys: list[bytes], rows: list[bytes]) -> None:
    deque(map(call, keys, rows), maxlen=0)


def _ascending(keys: pa.LargeBinaryArray) -> bool:
    return bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _slice(parts: list[StoredColumn]) -> int:
    """How many entries to load at a time: their rows, and lists of them, are in memory."""
    each: int = sum(part.array.nbytes for part in parts) // max(1, len(parts[0]))
    return max(1, min(_SLICE, _SLICE_BYTES // max(1, each)))


def _gathered(rows: Iterator[bytes], entries: int, size: int) -> list[bytes]:
    """The next rows, until there are so many or so many bytes."""
    found: list[bytes] = []
    while len(found) < entries and size > 0:
        some = list(itertools.islice(rows, min(_BLOCK, entries - len(found))))
        if not some:
            break
        found += some
        size -= sum(map(len, some))
    return found


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

    def ordered(self, entry: Hashable) -> Iterator[tuple[bytes, Any]]:
        """The keys of one map, by their canonical form, which is how they are stored."""
        return ((canonical(key), key) for key, _ in self.scan(entry))


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
