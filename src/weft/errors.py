"""Everything Weft raises on purpose, under one root.

    WeftError
    |-- UsageError          the request cannot be carried out as written; nothing was started (exit code 2)
    |   |-- HostListError   -H, a hostfile
    |   |-- RankfileError   --rankfile
    |   `-- TopologyError   hosts that differ, dimensions that do not multiply to the world size
    |-- ConnectError        a host could not be reached or its agent could not be started
    |-- CheckError          the preflight found something that would make the run fail
    `-- RunError            workers were started and the run failed

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


class TopologyError(UsageError):
    """The hosts do not form the hierarchy that was asked for."""


class ConnectError(WeftError):
    """A host could not be reached, or its agent could not be started."""

    exit_code = 2


class CheckError(WeftError):
    """The preflight found something that would make the run fail; nothing was started."""

    exit_code = 2


class RunError(WeftError):
    """Workers were started and the run failed."""
