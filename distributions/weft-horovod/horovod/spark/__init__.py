"""Refuses horovod.spark, and names the way."""

raise ImportError(
    "horovod.spark needs Spark's executors as workers, which there are none of here; "
    "use horovod.run(func, num_proc=N) or weft run -H host1,host2"
)
