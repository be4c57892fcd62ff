"""A job on Spark, one Spark job an epoch: `job` on the driver, `relay` in Spark's workers, `slot` beside the executors."""
