"""Launching: the command `horovodrun`, by `weft run`, and the function `horovod.run`."""
