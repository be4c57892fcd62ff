"""`pyflink.common`: `penstock.common`, and the client of a job, which knows more than what is common to all."""

from typing import TYPE_CHECKING, Any

from penstock import common
from penstock.common import *
from penstock.common import __all__ as _common
from penstock.driver.client import JobClient

__all__ = [*_common, "JobClient"]

__path__: list[str] = []  # a package to the import system; its modules are found by the alias finder

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(common, name)  # its modules, and what it says of names that are not here
