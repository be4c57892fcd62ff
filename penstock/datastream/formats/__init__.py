"""Formats of messages: PyFlink's `pyflink.datastream.formats`."""
