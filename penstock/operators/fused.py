"""One loop over a block for a whole chain of functions, instead of a loop and a list for each.

The loop is source text, made once for a sequence such as ("map", "filter"): calling the user's functions is most of what it does.
A record passes all of them before the next one begins, as in Flink. For map and filter it is

    for v0 in values:
        try:
            v1 = f0(v0)
            ...                                  # v1 becomes a value that nobody else holds, unless it cannot be changed
        except Exception as error:
            fail(0, error, v0)                   # which function, and on which record
        try:
            if not f1(v1):
                continue
            ...
        except Exception as error:
            fail(1, error, v1)
        n1 += 1                                  # what has left the filter
        append(v1)

A `try` costs nothing where nothing is raised. What a function gives counts as it is at that moment (`penstock.common.values`); flat
tuples, which most records are, are looked at in place, and what is known not to change is not looked at twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from penstock.common.values import ATOMS, own
from penstock.records.sizes import FIRST_LOOK, next_look

Kind: TypeAlias = Literal["map", "filter", "flat_map"]
# (values, timestamps, functions, fail, emit, records of a block) → (values, timestamps, how many have left each function)
Loop: TypeAlias = Callable[
    [
        Sequence[Any],
        Sequence[int | None] | None,
        Sequence[Callable[[Any], Any]],
        Callable[[int, Exception, Any], None],
        Callable[[list[Any], list[int | None] | None], None],
        int,
    ],
    tuple[list[Any], list[int | None] | None, tuple[int, ...]],
]

# Beside this file: tracebacks for users leave out the frames of our own folder.
_FILE: Final = os.path.join(os.path.dirname(__file__), "<chain of functions>")


@cache
def fused_loop(kinds: tuple[Kind, ...], stamped: bool, plain: tuple[bool, ...] = ()) -> Loop:
    """The loop for functions of these kinds. `stamped`: records have timestamps, which what is made of them gets. `plain`: of the
    records, and behind each function, whether they are known not to be changeable, so that none need be looked at.

    `fail` raises. `emit` is only called in the middle, by chains with a flat_map: memory is bounded by a block, not by what a
    function yields.
    """
    text = "\n".join(_Text(kinds, stamped, plain or (False,) * (len(kinds) + 1)).lines())
    names: dict[str, Any] = {"ATOMS": ATOMS, "own": own, "look_at": next_look, "FIRST_LOOK": FIRST_LOOK}
    exec(compile(text, _FILE, "exec"), names)
    loop: Loop = names["loop"]
    return loop


class _Text:
    def __init__(self, kinds: tuple[Kind, ...], stamped: bool, plain: tuple[bool, ...]) -> None:
        self._kinds, self._bounded, self._plain = kinds, "flat_map" in kinds, plain
        # Where every record makes one, timestamps stay what they are.
        self._stamps = stamped and set(kinds) != {"map"}
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        counts = [f"n{place}" for place, kind in enumerate(self._kinds) if kind != "map"]
        self._add(0, "def loop(values, stamps, functions, fail, emit, records):")
        self._add(1, "atoms, out = ATOMS, []")
        self._add(1, "append = out.append")
        self._add(1, "".join(f"f{place}, " for place in range(len(self._kinds))) + "= functions")
        if counts:
            self._add(1, " = ".join([*counts, "0"]))
        if self._stamps:
            self._add(1, "out_stamps = []")
            self._add(1, "stamp = out_stamps.append")
        if self._bounded:
            self._add(1, "first = limit = min(FIRST_LOOK, records)")
        self._add(1, "for v0, t in zip(values, stamps):" if self._stamps else "for v0 in values:")
        self._step(2, 0, "v0", None)
        made, left = "len(values)", []
        for place, kind in enumerate(self._kinds):
            made = made if kind == "map" else f"n{place}"
            left.append(made)
        kept = "out_stamps" if self._stamps else "stamps"
        self._add(1, f"return out, {kept}, ({''.join(f'{count}, ' for count in left)})")
        return self._lines

    def _add(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _step(self, depth: int, place: int, value: str, changeable: str | None) -> None:
        """`changeable`: the variable that tells whether the value can be changed; None: not known."""
        if place == len(self._kinds):
            self._give(depth, value)
            return
        made, follows, plain = f"v{place + 1}", "filter" in self._kinds[place + 1 : place + 2], self._plain[place + 1]
        flag = f"c{place + 1}" if follows and not plain else None
        self._add(depth, "try:")
        match self._kinds[place]:
            case "map":
                self._add(depth + 1, f"{made} = f{place}({value})")
                if not plain:
                    self._own(depth + 1, made, flag)
                self._fail(depth, place, value)
                self._step(depth, place + 1, made, flag)
            case "filter":
                self._add(depth + 1, f"if not f{place}({value}):")
                self._add(depth + 2, "continue")
                if plain:
                    pass
                elif changeable is None:
                    self._own(depth + 1, value, flag)
                else:
                    self._add(depth + 1, f"if {changeable}:")
                    self._add(depth + 2, f"{value} = own({value})")
                    flag = changeable
                self._fail(depth, place, value)
                self._add(depth, f"n{place} += 1")
                self._step(depth, place + 1, value, flag)
            case "flat_map":
                self._add(depth + 1, f"results = f{place}({value})")
                self._add(depth + 1, "if results is not None:")
                self._add(depth + 2, f"for {made} in results:")
                self._own(depth + 3, made, flag)
                self._add(depth + 3, f"n{place} += 1")
                self._step(depth + 3, place + 1, made, flag)
                self._fail(depth, place, value)

    def _fail(self, depth: int, place: int, value: str) -> None:
        self._add(depth, "except Exception as error:")
        self._add(depth + 1, f"fail({place}, error, {value})")

    def _own(self, depth: int, value: str, flag: str | None) -> None:
        """`own`, without its call for what most records are."""
        no, yes = ("", "") if flag is None else (f"{flag} = False", f"{flag} = True")
        self._add(depth, f"kind = type({value})")
        self._add(depth, "if kind is tuple:")
        self._add(depth + 1, f"for item in {value}:")
        self._add(depth + 2, "if type(item) not in atoms:")
        for line in filter(None, (f"{value} = own({value})", yes, "break")):
            self._add(depth + 3, line)
        if flag is not None:
            self._add(depth + 1, "else:")
            self._add(depth + 2, no)
            self._add(depth, "elif kind in atoms:")
            self._add(depth + 1, no)
            self._add(depth, "else:")
        else:
            self._add(depth, "elif kind not in atoms:")
        for line in filter(None, (f"{value} = own({value})", yes)):
            self._add(depth + 1, line)

    def _give(self, depth: int, value: str) -> None:
        self._add(depth, f"append({value})")
        if self._stamps:
            self._add(depth, "stamp(t)")
        if self._bounded:
            self._add(depth, "if len(out) >= limit:")
            self._add(depth + 1, "limit = look_at(out, records)")
            self._add(depth + 1, "if not limit:")
            self._add(depth + 2, f"emit(out, {'out_stamps' if self._stamps else 'None'})")
            self._add(depth + 2, "limit, out = first, []")
            self._add(depth + 2, "append = out.append")
            if self._stamps:
                self._add(depth + 2, "out_stamps = []")
                self._add(depth + 2, "stamp = out_stamps.append")
