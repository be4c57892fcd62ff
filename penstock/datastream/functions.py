"""User functions: `penstock.functions`, under the name of `pyflink.datastream.functions`."""

from typing import TYPE_CHECKING, TypeVar

from penstock.functions import *
from penstock.functions import __all__ as __all__

# For the annotations of programs that import them from here.
KEY = TypeVar("KEY")
IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
W = TypeVar("W")
W2 = TypeVar("W2")

if not TYPE_CHECKING:
    from penstock.functions import __getattr__ as __getattr__
