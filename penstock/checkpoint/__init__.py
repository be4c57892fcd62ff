"""Checkpoints of one job folder: storage, layout, manifests, retention and ownership. `store` says where to begin to read."""
