"""`pyflink.datastream.connectors`: the interfaces and the connectors that Penstock has under PyFlink's names."""

from __future__ import annotations

from penstock.functions.connectors import DeliveryGuarantee, Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]

__path__: list[str] = []  # a package to the import system; its modules are found by the alias finder
