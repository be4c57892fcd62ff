"""Penstock beside other systems, on the same events: rates, cores, and answers that are checked."""
