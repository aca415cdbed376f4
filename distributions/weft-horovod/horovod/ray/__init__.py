"""Refuses horovod.ray, and names the way."""

raise ImportError(
    "horovod.ray needs Ray's actors as workers, which there are none of here; "
    "use horovod.run(func, num_proc=N, hosts='a:2,b:2') or weft run -H host1,host2"
)
