"""Rows into PostgreSQL: appended and upserted, beside loops that do it by hand."""
