"""Numbers for keys, for whole columns at once: 0, 1, 2, … in the order in which keys first came. No key becomes a Python object.

    keys        (7, "a")  (9, "b")  (7, "a")  null…      words     │ 7 9 7 │ and hash of "a", "b", "a"
    hash            h1        h2        h1               places    │ h1 → 0 │   │ h2 → 1 │          open addressing
    numbers          0         1         0               compared  │ words and text of the number that was found

A key is compared as the engine compares keys: every NaN is one, 0.0 and -0.0 are two, null is one. The hash is good for this
process only: an index is made again after a restore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.records.arrow_columns import one_nan, plain

Longs: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]

NOT_KNOWN: Final = -1
_FIRST_SIZE: Final = 1 << 10
_LONG_TEXT: Final = 256  # bytes: beyond, Python hashes it
_NULL: Final = 0x9E3779B97F4A7C15

_t = pa.types


class Growing:
    """A numpy array that is added to at its end."""

    def __init__(self, kind: Any) -> None:
        self._room: npt.NDArray[Any] = np.empty(_FIRST_SIZE, kind)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def values(self) -> npt.NDArray[Any]:
        """What is in it; writing to it changes it."""
        return self._room[: self._used]

    def extend(self, values: npt.NDArray[Any]) -> None:
        """Adds values."""
        needed = self._used + len(values)
        if needed > len(self._room):
            room = np.empty(max(needed, 2 * len(self._room)), self._room.dtype)
            room[: self._used] = self.values
            self._room = room
        self._room[self._used : needed] = values
        self._used = needed


class _Texts:
    """Strings of bytes, added to at the end."""

    def __init__(self) -> None:
        self._data = Growing(np.uint8)
        self._ends = Growing(np.int64)
        self._ends.extend(np.zeros(1, np.int64))

    def extend(self, texts: pa.Array) -> None:
        offsets, data = _parts(texts)
        self._ends.extend(offsets[1:] - offsets[0] + len(self._data))
        self._data.extend(data[offsets[0] : offsets[-1]])

    def equal(self, numbers: Longs, texts: pa.Array) -> npt.NDArray[np.bool_]:
        buffers = [None, pa.py_buffer(self._ends.values), pa.py_buffer(self._data.values)]
        held = pa.Array.from_buffers(pa.large_binary(), len(self._ends) - 1, buffers)
        equal: npt.NDArray[np.bool_] = pc.equal(held.take(pa.array(numbers)), texts).to_numpy(zero_copy_only=False)
        return equal


class _Encoded:
    """Keys of a block: what is compared of them, and their hash."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.words: list[Longs] = []  # exact, of values of a fixed width
        self.texts: list[pa.Array] = []  # without nulls
        self.shape = ""  # of which kind each column is: 7 and 7.0 are other bits
        rows = len(columns[0])
        nulls: Longs = np.zeros(rows, np.int64)
        hashes: Hashes | None = None
        for place, column in enumerate(columns):
            column = one_nan(plain(column))
            if column.null_count:
                nulls |= np.where(column.is_null().to_numpy(zero_copy_only=False), 1 << place % 63, 0)
            if _is_text(column.type):
                self.shape += "t"
                texts = column.cast(pa.large_binary())
                texts = texts.fill_null(b"") if texts.null_count else texts
                self.texts.append(texts)
                hashes = _mixed(hashes, _hash_of_texts(texts))
                continue
            kind, words = _words(column)
            self.shape += kind
            self.words += words
            for word in words:
                hashes = _mixed(hashes, word.view(np.uint64))
        assert hashes is not None
        self.nulls: Longs | None = nulls if nulls.any() else None
        if self.nulls is not None:  # of rows without nulls the hash is the one they have in a block without
            hashes = np.where(nulls != 0, _mixed(hashes, nulls.view(np.uint64) * np.uint64(_NULL)), hashes)
        self.hashes = hashes

    def chosen(self, rows: Longs) -> tuple[list[Longs], list[pa.Array], Longs | None]:
        texts = [texts.take(pa.array(rows)) for texts in self.texts]
        return [words[rows] for words in self.words], texts, None if self.nulls is None else self.nulls[rows]


class KeyIndex:
    """The numbers of keys that have come so far."""

    def __init__(self) -> None:
        self._size = _FIRST_SIZE
        self._numbers: Longs = np.full(self._size, NOT_KNOWN, np.int64)  # by place
        self._placed: Hashes = np.zeros(self._size, np.uint64)  # the hash of each of them
        self._hashes = Growing(np.uint64)  # by number, as all that follows
        self._words: list[Growing] | None = None
        self._texts: list[_Texts] = []
        self._nulls: Growing | None = None  # which columns are null; None: none ever was
        self._shape = ""

    def __len__(self) -> int:
        return len(self._hashes)

    def number(self, columns: Sequence[pa.Array]) -> Longs:
        """The number of each row's key; keys that are new get the next ones."""
        keys = self._encoded(columns)
        numbers = self._found(keys, np.arange(len(keys.hashes)))
        while len(missing := np.flatnonzero(numbers == NOT_KNOWN)):
            # The first row of each new hash is certainly of a new key; of other keys with that hash, which is next to never,
            # the next turn takes care.
            _, first = np.unique(keys.hashes[missing], return_index=True)
            self._add(keys, missing[np.sort(first)])
            numbers[missing] = self._found(keys, missing)
        return numbers

    def _encoded(self, columns: Sequence[pa.Array]) -> _Encoded:
        keys = _Encoded(columns)
        if self._words is None:
            self._shape = keys.shape
            self._words = [Growing(np.int64) for _ in keys.words]
            self._texts = [_Texts() for _ in keys.texts]
        elif keys.shape != self._shape:
            raise PenstockError(
                f"the types of key columns have changed on the way, to {', '.join(str(column.type) for column in columns)}: cast "
                "them to one type before key_by"
            )
        return keys

    def _found(self, keys: _Encoded, rows: Longs) -> Longs:
        """The numbers of these rows' keys, or NOT_KNOWN."""
        found = np.full(len(rows), NOT_KNOWN, np.int64)
        hashes = keys.hashes[rows]
        mask = np.uint64(self._size - 1)
        places = (hashes & mask).view(np.int64)
        pending: Longs = np.arange(len(rows))
        while len(pending):
            at = places[pending]
            numbers = self._numbers[at]
            taken = numbers != NOT_KNOWN
            same = taken & (self._placed[at] == hashes[pending])
            hits = np.flatnonzero(same)
            if len(hits):
                right = self._equal(keys, rows[pending[hits]], numbers[hits])
                found[pending[hits[right]]] = numbers[hits[right]]
                taken[hits[right]] = False  # done
            pending = pending[taken]
            places[pending] = (places[pending] + 1) & (self._size - 1)
        return found

    def _equal(self, keys: _Encoded, rows: Longs, numbers: Longs) -> npt.NDArray[np.bool_]:
        assert self._words is not None
        if self._nulls is None and keys.nulls is None and len(keys.words) == 1 and not keys.texts:
            return np.ones(len(rows), np.bool_)  # the hash of a single word is the word, mixed
        words, texts, nulls = keys.chosen(rows)
        equal = np.ones(len(rows), np.bool_)
        for column, word in zip(self._words, words, strict=True):
            equal &= column.values[numbers] == word
        for held, text in zip(self._texts, texts, strict=True):
            equal &= held.equal(numbers, text)
        if self._nulls is not None:
            equal &= self._nulls.values[numbers] == (0 if nulls is None else nulls)
        elif nulls is not None:
            equal &= nulls == 0
        return equal

    def _add(self, keys: _Encoded, rows: Longs) -> None:
        """New keys, each once."""
        assert self._words is not None
        before = len(self)
        words, texts, nulls = keys.chosen(rows)
        if nulls is not None and self._nulls is None:
            self._nulls = Growing(np.int64)
            self._nulls.extend(np.zeros(before, np.int64))
        if self._nulls is not None:
            self._nulls.extend(np.zeros(len(rows), np.int64) if nulls is None else nulls)
        for column, word in zip(self._words, words, strict=True):
            column.extend(word)
        for held, text in zip(self._texts, texts, strict=True):
            held.extend(text)
        self._hashes.extend(keys.hashes[rows])
        if 2 * len(self) > self._size:
            while 2 * len(self) > self._size:
                self._size *= 2
            self._numbers = np.full(self._size, NOT_KNOWN, np.int64)
            self._placed = np.zeros(self._size, np.uint64)
            before = 0
        self._place(np.arange(before, len(self)))

    def _place(self, numbers: Longs) -> None:
        hashes = self._hashes.values[numbers]
        places = (hashes & np.uint64(self._size - 1)).view(np.int64)
        while len(numbers):
            free = np.flatnonzero(self._numbers[places] == NOT_KNOWN)
            self._numbers[places[free]] = numbers[free]  # of several for one place one stays
            stays = free[self._numbers[places[free]] == numbers[free]]
            self._placed[places[stays]] = hashes[stays]
            left = np.ones(len(numbers), np.bool_)
            left[stays] = False
            numbers, hashes = numbers[left], hashes[left]
            places = (places[left] + 1) & (self._size - 1)


# ------------------------------------------------------------------ what is compared, and hashes


def can_be_indexed(kind: pa.DataType) -> bool:
    """Whether a column of this type, in its plain layout, can be a key here."""
    return (
        _is_text(kind)
        or _t.is_null(kind)
        or _t.is_decimal(kind)
        or (_t.is_primitive(kind) and not _t.is_interval(kind))
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(_t.is_string(kind) or _t.is_large_string(kind) or _is_binary(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(_t.is_binary(kind) or _t.is_large_binary(kind) or _t.is_fixed_size_binary(kind))


def _words(column: pa.Array) -> tuple[str, list[Longs]]:
    """A letter for the kind of values, and all their bits; zero for null."""
    kind = column.type
    if _t.is_null(kind):
        return "i", [np.zeros(len(column), np.int64)]
    if _t.is_decimal(kind):
        return f"d{kind.scale} {kind.bit_width}", _decimal_words(column)
    if not can_be_indexed(kind):
        raise PenstockError(f"a column of {kind} cannot be a key of columns")
    if _t.is_floating(kind):
        bits = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        return f"f{kind.bit_width}", [_longs(bits)]
    if _t.is_temporal(kind):
        return str(kind), [_longs(column.view(pa.int64() if kind.bit_width == 64 else pa.int32()))]
    if _t.is_uint64(kind):
        return "i", [_longs(column.view(pa.int64()))]
    return "i", [_longs(column.cast(pa.int64()))]


def _longs(column: pa.Array) -> Longs:
    values: Longs = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype=np.int64)


def _decimal_words(column: pa.Array) -> list[Longs]:
    parts = column.type.byte_width // 8
    held = np.frombuffer(column.buffers()[1] or b"", np.int64)
    table = held[column.offset * parts : (column.offset + len(column)) * parts].reshape(-1, parts)
    if column.null_count:
        table = np.where(column.is_valid().to_numpy(zero_copy_only=False)[:, None], table, 0)
    return [np.ascontiguousarray(table[:, part]) for part in range(parts)]


def _mixed(before: Hashes | None, words: npt.NDArray[Any]) -> Hashes:
    """Each bit of a word changes half of the bits; of a single word the hash is another for every other."""
    x = words if before is None else (before * np.uint64(31)) ^ words
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = x ^ (x >> np.uint64(31))
    return mixed


def _parts(texts: pa.Array) -> tuple[Longs, npt.NDArray[np.uint8]]:
    """Where each begins and the last ends, in the data."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(data or b"", np.uint8)


def _hash_of_texts(texts: pa.Array) -> Hashes:
    """Eight bytes of every text at a time."""
    hashes = np.zeros(len(texts), np.uint64)
    if not len(texts):
        return hashes
    offsets, data = _parts(texts)
    first, last = int(offsets[0]), int(offsets[-1])
    held = np.zeros(last - first + 8, np.uint8)
    held[: last - first] = data[first:last]
    words = np.ndarray((len(held) - 7,), np.dtype("<u8"), held, strides=(1,))  # one at every byte
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    hashes += lengths.view(np.uint64)
    for row in np.flatnonzero(lengths > _LONG_TEXT).tolist():
        hashes[row] = hash(held[starts[row] : starts[row] + lengths[row]].tobytes()) % 2**64
    left = np.flatnonzero((lengths > 0) & (lengths <= _LONG_TEXT))
    done = 0
    while len(left):
        rest = lengths[left] - done
        word = words[starts[left] + done]
        short = rest < 8
        word[short] &= (np.uint64(1) << (rest[short] * 8).astype(np.uint64)) - np.uint64(1)
        hashes[left] = _mixed(hashes[left], word)
        done += 8
        left = left[rest > 8]
    return hashes
