"""Who this process is, as functions and as the class that Horovod has them in."""

from weft.compat.horovod import basics
from weft.compat.horovod.negotiation.messages import ReduceKind


class HorovodBasics:
    """The functions of a framework's module, as methods; the arguments name a library that there is none of."""

    Average, Sum, Adasum = ReduceKind.AVERAGE, ReduceKind.SUM, ReduceKind.ADASUM
    Min, Max, Product = ReduceKind.MIN, ReduceKind.MAX, ReduceKind.PRODUCT

    def __init__(self, pkg_path: str = "", *args: object) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        return getattr(basics, name)


__all__ = ["HorovodBasics"]
