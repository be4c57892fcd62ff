"""Aggregates over columns: `penstock.functions.aggregates`, where the streams that use them are."""

from penstock.functions.aggregates import *
from penstock.functions.aggregates import __all__ as __all__
