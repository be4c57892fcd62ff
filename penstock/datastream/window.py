"""Windows: `penstock.functions.window`, under the name of `pyflink.datastream.window`."""

from penstock.common.time import Duration as Duration
from penstock.common.time import Time as Time
from penstock.functions.window import *
from penstock.functions.window import __all__ as __all__
