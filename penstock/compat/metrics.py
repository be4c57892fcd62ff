"""`pyflink.metrics`: `penstock.common.metrics`, which PyFlink has one module deeper."""

from penstock.common.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

__path__: list[str] = []  # a package to the import system; its module is found by the alias finder
