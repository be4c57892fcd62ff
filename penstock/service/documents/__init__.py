"""A job's facts in the shape of Flink's REST documents. Pure functions: facts in, JSON out."""
