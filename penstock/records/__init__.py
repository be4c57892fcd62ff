"""Blocks of records, in rows and in columns: what they are, how large, how they are written."""

from penstock.records.blocks import Block, Columns, PunctuatedRows, Rows, SideRows, TimestampArray

__all__ = ["Block", "Columns", "PunctuatedRows", "Rows", "SideRows", "TimestampArray"]
