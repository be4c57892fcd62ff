"""One word, one thing: classes and the glossary use the same words, and no two classes share a name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ("protocol", "engine", "driver")
OFTEN = 3  # a word in the names of so many classes of the core is part of its vocabulary

# Words that mean in a class name what they mean in any English text.
PLAIN = frozenset(
    {"already", "end", "ended", "error", "failed", "of", "plan", "record", "report", "request", "result", "run"}
    | {"settings", "state", "statistics", "time", "write", "written"}
)


def public_classes(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """(name, file) of the classes at the top of modules; those that begin with an underscore are their module's own."""
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, path.relative_to(folder.parent).as_posix()


def entries(text: str) -> dict[str, tuple[str, ...]]:
    """The words that the glossary defines, and the classes that each entry says it is: **Ack** (`TaskAck`)."""
    found = re.findall(r"^\*\*([^*]+)\*\*(?: \*\(Penstock\)\*)?((?: \((?:`\w+`(?:, )?)+\))?)", text, flags=re.MULTILINE)
    return {word: tuple(re.findall(r"`(\w+)`", classes)) for word, classes in found}


def words_of(name: str) -> list[str]:
    """TakeSnapshot: take, snapshot. A plural is its singular."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)]
    return [word.removesuffix("s") if not word.endswith(("ss", "us")) else word for word in words]


def undefined(names: Iterable[str], defined: Set[str]) -> dict[str, list[str]]:
    """Words that are in the names of several classes, and neither in the glossary nor plain English; with those classes."""
    used: Mapping[str, set[str]] = defaultdict(set)
    for name in names:
        for word in words_of(name):
            used[word].add(name)
    known = {part.removesuffix("s") for word in defined for part in re.findall(r"[a-z]+", word.lower())} | {
        word.removesuffix("s") for word in PLAIN
    }
    known |= {part for word in defined for part in words_of(word)}
    return {word: sorted(names) for word, names in sorted(used.items()) if len(names) >= OFTEN and word not in known}


def twice(classes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that several classes have, with the files of these."""
    places: Mapping[str, list[str]] = defaultdict(list)
    for name, place in classes:
        places[name].append(place)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


GLOSSARY = entries((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
CLASSES = list(public_classes([ROOT / "penstock"]))


def test_no_two_public_classes_have_one_name() -> None:
    assert twice(CLASSES) == {}


def test_every_class_that_an_entry_names_is_there() -> None:
    named = {name for classes in GLOSSARY.values() for name in classes}
    named |= {word for word in GLOSSARY if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", word)}
    assert named - {name for name, _ in CLASSES} == set()


def test_a_word_in_the_names_of_several_classes_of_the_core_is_in_the_glossary() -> None:
    core = [name for name, _ in public_classes([ROOT / "penstock" / package for package in CORE])]
    assert undefined(core, GLOSSARY.keys()) == {}


def test_a_class_with_the_name_of_an_entry_is_what_the_entry_says() -> None:
    """Whoever writes a class called Barrier means the glossary's barrier, and the entry names the class."""
    core = {name for name, _ in public_classes([ROOT / "penstock" / package for package in CORE])}
    silent = {word for word, classes in GLOSSARY.items() if word in core and word not in (*classes, "JobMaster")}
    assert silent == set()


def test_entries_are_in_the_order_of_the_alphabet() -> None:
    words = [word.lower() for word in GLOSSARY]
    assert words == sorted(words)


def test_the_checks_find_what_they_look_for() -> None:
    assert entries("**Ack** (`TaskAck`, `Other`) — x\n\n**Fold** *(Penstock)* — y") == {
        "Ack": ("TaskAck", "Other"),
        "Fold": (),
    }
    assert words_of("RocksDBTimers") == ["rock", "db", "timer"]
    assert undefined(["BarrierSent", "LostBarrier", "BarrierGate"], {"Input gate"}) == {
        "barrier": ["BarrierGate", "BarrierSent", "LostBarrier"]
    }
    assert undefined(["BarrierSent", "LostBarrier", "BarrierGate"], {"Barrier"}) == {}
    assert twice([("A", "x.py"), ("B", "x.py"), ("A", "y.py")]) == {"A": ["x.py", "y.py"]}
