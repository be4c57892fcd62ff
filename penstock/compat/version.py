"""`pyflink.version`: the release of PyFlink whose names Penstock mirrors."""

from __future__ import annotations

from typing import Final

__version__: Final = "2.3.0"
