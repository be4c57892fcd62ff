"""What a connector implements: `penstock.functions.connectors`, where the connectors are."""

from penstock.functions.connectors import *
from penstock.functions.connectors import __all__ as __all__
