"""Windows: `penstock.functions.window`, under the name of `pyflink.datastream.window`."""

from penstock.functions.window import *
from penstock.functions.window import __all__ as __all__
