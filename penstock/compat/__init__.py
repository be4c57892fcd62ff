"""Penstock under other names: see `penstock.compat.pyflink`."""
