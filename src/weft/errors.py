"""Everything Weft raises on purpose, under one root.

    WeftError
    |-- UsageError          the request cannot be carried out as written; nothing was started (exit code 2)
    |   |-- HostListError   -H, a hostfile
    |   |-- RankfileError   --rankfile
    |   |-- DataError       a table, a file of one, or a bound on memory that cannot be worked with
    |   |   |-- ShareError  the rows of another worker, which fits the same model
    |   |   `-- PictureError  a picture, a film, a file of labels or a data set of them
    |   |-- ModelError      a model, its card or its store that cannot be worked with
    |   |-- TopologyError   hosts that differ, dimensions that do not multiply to the world size
    |   `-- BudgetError     a budget of memory that no plan can keep, on the device or on the host
    |-- ConnectError        a host could not be reached or its agent could not be started
    |-- CheckError          the preflight found something that would make the run fail
    |-- ParityError         an exported model does not answer as the model it was made from; no file is left
    |-- MessageError        another process said something that its protocol does not know
    |-- RunError            workers were started and the run failed
    `-- CollectiveError     an operation among ranks failed; the group is of no more use
        |-- PeerError       a peer died, hung or was cut off
        |-- MismatchError   ranks called different operations, or with different shapes
        `-- VerifyError     a result is not what a plain reduction gives

A message says what must hold, what was got, and what to do next.
"""


class WeftError(Exception):
    """The root of all errors that Weft raises on purpose."""

    exit_code = 1


class UsageError(WeftError):
    """The request cannot be carried out as it is written; nothing was started."""

    exit_code = 2


class HostListError(UsageError):
    """A host list or a hostfile names hosts that cannot be used."""


class RankfileError(UsageError):
    """A rank file cannot be read or does not describe a whole world."""


class DataError(UsageError, ValueError):
    """A table cannot be read, or not within the memory that it may use."""


class ShareError(DataError):
    """Another worker cannot fit its rows, so the model that all of them fit cannot be."""


class PictureError(DataError):
    """A picture, a film, a file of labels or a data set of them cannot be read or changed as asked."""


class ModelError(UsageError, ValueError):
    """A model, its card or its place in a store cannot be worked with."""


class TopologyError(UsageError):
    """The hosts do not form the hierarchy that was asked for."""


class BudgetError(UsageError, RuntimeError):
    """A budget of device or host memory that no plan can keep."""

    def __init__(self, message: str, short: int = 0) -> None:
        super().__init__(message)
        self.short = short  # bytes of device memory that were missing


class ConnectError(WeftError):
    """A host could not be reached, or its agent could not be started."""

    exit_code = 2


class CheckError(WeftError):
    """The preflight found something that would make the run fail; nothing was started."""

    exit_code = 2


class ParityError(WeftError):
    """An exported model does not answer as the model it was made from; no file is left."""


class MessageError(WeftError):
    """Another process said something that its protocol does not know."""


class RunError(WeftError):
    """Workers were started and the run failed."""


class CollectiveError(WeftError, RuntimeError):
    """An operation among ranks failed; the group is of no more use."""


class PeerError(CollectiveError):
    """A peer died, hung or was cut off while others waited for it."""


class MismatchError(CollectiveError):
    """Ranks called different operations, or the same with different shapes or types."""


class VerifyError(CollectiveError):
    """A result is not what a plain reduction gives, by more than rounding explains."""
