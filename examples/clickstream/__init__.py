"""A clickstream job that is killed twice and still counts every click exactly once: `make demo`."""
