"""State and its descriptors: `penstock.functions.state`, under the name of `pyflink.datastream.state`."""

from penstock.functions.state import *
from penstock.functions.state import __all__ as __all__
