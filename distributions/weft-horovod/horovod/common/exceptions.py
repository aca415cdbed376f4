"""Errors that scripts catch."""

from weft.compat.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Return the sentence about a framework that is another one than Horovod was built with."""
    return (
        f"Framework {name} must have the version that Horovod was built with, {installed_version}, got {version}; "
        f"install {name}=={installed_version}"
    )


class HorovodVersionMismatchError(ImportError):
    """A framework is another one than Horovod was built with; never raised here, as nothing is built."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version


__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]
