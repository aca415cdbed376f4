"""The operations, under the name of the module that Horovod has them in."""

from horovod.common.util import get_average_backwards_compatibility_fun, gpu_available, num_rank_is_power_2
from weft.compat.horovod.negotiation.messages import ReduceKind
from weft.compat.horovod.torch import *  # noqa: F403
from weft.compat.horovod.torch import __all__ as _names

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(ReduceKind)

__all__ = [*_names, "gpu_available", "handle_average_backwards_compatibility", "num_rank_is_power_2"]
