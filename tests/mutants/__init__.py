"""Sabotages of the product, each with the tests that must notice. `make mutants` tries them all."""
