"""Writes the tables of the reference page from the table of options: `python -m penstock.common.option_page PAGE`.

A page has a table between `<!-- JobOptions -->` and `<!-- end -->`, one for each section; what stands around them is written
by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from penstock.common.config_options import ConfigOption
from penstock.common.options import SECTIONS, options_of


def rendered(page: str) -> str:
    """The page with its tables as they should be."""
    tables = {section.__name__: _table(section) for section in SECTIONS}
    pattern = re.compile(r"<!-- (\w+Options) -->\n.*?<!-- end -->", re.DOTALL)
    return pattern.sub(lambda found: f"<!-- {found[1]} -->\n\n{tables[found[1]]}\n\n<!-- end -->", page)


def _table(section: type) -> str:
    rows = (
        f"| `{option.key}` | {_allowed(option)} | {_default(option)} | {_meaning(option)} |"
        for option in options_of(section)
    )
    return "\n".join(["| key | value | default | meaning |", "| --- | --- | --- | --- |", *rows])


def _allowed(option: ConfigOption[Any]) -> str:
    return re.sub("^an? ", "", option.type.allowed()).replace("'", "`")


def _default(option: ConfigOption[Any]) -> str:
    if option.otherwise or option.default in (None, ()):
        return option.otherwise or "–"
    text = option.type.write(option.default)
    return f"`{text}`" if isinstance(option.default, (str, bool)) else text


def _meaning(option: ConfigOption[Any]) -> str:
    older = ", ".join(f"`{key}`" for key in option.older)
    return f"{option.meaning}. Older: {older}" if older else option.meaning


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
