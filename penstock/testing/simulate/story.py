"""The story of a run, line by line, and how often each fault fired. The same seed tells the same story, byte for byte."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

# What no seed decides: random names, who owns a folder since when, and the line that asked for the run.
_NAME = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{10,40}(?![0-9a-zA-Z])")
_OWNER = re.compile(r" \(process \d+ on host [^)]*\)|, [^\s,()]+:\d+(?=\))")


@dataclass(slots=True)
class Story:
    """`fired` counts what is told with `happened`: it is the proof that a fault of a run took place."""

    folder: str = ""  # another one every time
    lines: list[str] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    _names: dict[str, str] = field(default_factory=dict)
    _repeated: int = 1  # how often the last line was told in a row

    def tell(self, line: str) -> None:
        """Adds a line; a line like the one before is counted instead."""
        line = self._plain(line)
        if self.lines and self.lines[-1].partition("  (× ")[0] == line:
            self._repeated += 1
            self.lines[-1] = f"{line}  (× {self._repeated})"
        else:
            self._repeated = 1
            self.lines.append(line)

    def happened(self, fault: str, line: str) -> None:
        """Tells a line and counts the fault."""
        self.fired[fault] += 1
        self.tell(line)

    def _plain(self, text: str) -> str:
        """Random names become numbers, in the order in which they are met."""
        first = next(iter(text.splitlines()), "")
        if self.folder:
            first = first.replace(self.folder, "…")
        return _NAME.sub(
            lambda match: self._names.setdefault(match[0], f"#{len(self._names) + 1}"), _OWNER.sub("", first)
        )
