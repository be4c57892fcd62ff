"""Records of columns as tuples, in the place of the Rows that they are, for functions that cannot tell (`positions`).

    columns   key 1 2 │ price 5 6 │ note "a" "b"        a function that reads record.price, and one that reads record[0]
    tuples    (1, 5, None) (2, 6, None)                 with names, because one asks by name; nobody asks for the note

An error shows the Row that the tuple stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from penstock.common.typeinfo import TypeInformation
from penstock.operators.positions import fields_read
from penstock.records import Block, Columns, Rows
from penstock.records.convert import cannot_change, makes_rows, named_rows, names_of_rows, to_rows, to_tuples
from penstock.records.sizes import part_of

_FEW: Final = 16


class Reader(NamedTuple):
    """A function, and of how many arguments the record is the first."""

    function: Any
    arguments: int = 1


class LeanRows(NamedTuple):
    """`plain`: nothing in the tuples can be changed."""

    rows: Rows
    names: list[str]
    plain: bool


def are_few(block: Block) -> bool:
    """Whether the records of a block are made Rows sooner than it is known what functions read of them."""
    return len(block) < _FEW


def lean_rows(
    block: Block,
    type_info: TypeInformation | None,
    readers: Sequence[Reader],
    *,
    also: Collection[int] = (),
    whole: bool = False,
) -> LeanRows | None:
    """None: some of these functions must be given Rows, or the block makes none, or few. Fields that none of them reads, and that
    are not at one of the positions `also`, are None in the tuples, unless they are to be `whole`."""
    if not isinstance(block, Columns) or are_few(block) or not makes_rows(block.batch, type_info):
        return None
    names = names_of_rows(block.batch, type_info)
    positions, by_name = set(range(len(names)) if whole else also), False
    for function, arguments in readers:
        found = fields_read(function, names, arguments)
        if found is None:
            return None
        positions |= found.positions
        by_name = by_name or found.by_name
    rows = to_tuples(block, type_info, positions, by_name=by_name)
    return LeanRows(rows, names, cannot_change(block.batch, positions))


def shown(lean: LeanRows | None, block: Block, type_info: TypeInformation | None, value: Any) -> Any:
    """The record, for an error: the Row, if this is a tuple in its place."""
    if lean is None or value is None:
        return value
    place = next((at for at, record in enumerate(lean.rows.values) if record is value), None)
    if place is None:  # it was copied since
        return named_rows(lean.names, [value])[0]
    return to_rows(part_of(block, place, place + 1), type_info).values[0]
