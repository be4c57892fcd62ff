"""`python -m penstock.cli` is the `penstock` command of exactly this interpreter."""

from __future__ import annotations

from penstock.cli.main import main

main()
