"""A job on Spark's pipelined shuffle: `job` on the driver, `worker` in Spark's Python workers, `spark_plan` below PySpark's API."""
