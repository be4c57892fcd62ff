"""User functions: `penstock.functions`, under the name of `pyflink.datastream.functions`."""

from typing import TYPE_CHECKING

from penstock.functions import *
from penstock.functions import __all__ as __all__

if not TYPE_CHECKING:
    from penstock.functions import __getattr__ as __getattr__
