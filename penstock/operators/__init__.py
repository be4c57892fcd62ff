"""What runs inside a task. `base` is what an operator is, `wiring` connects those of one chain."""
