# mypy: ignore-errors
"""The surface of `horovod.torch`, on any number of ranks: what scripts rely on, one check after the other."""

import os

import horovod.torch as hvd
from checks import CHECKS, raises

os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"

if __name__ == "__main__":
    raises(ValueError, hvd.size, "use hvd.init()")
    hvd.init()
    # Each module adds its checks, which know rank and size of the world that is there.
    import surface_operations  # noqa: F401
    import surface_optimizers  # noqa: F401
    import surface_worlds  # noqa: F401

    for each in CHECKS:
        try:
            each()
        except BaseException:
            print(f"rank {hvd.rank()}: {each.__name__} failed", flush=True)
            raise
    print(f"rank {hvd.rank()} of {hvd.size()}: {len(CHECKS)} checks passed", flush=True)
