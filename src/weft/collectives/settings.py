"""Settings of the backend "weft": read from the environment once, where a world is made, and then handed on by value.

    WEFT_MODE=shm,ring   the mode of each dimension (`--mode`)
    WEFT_WIRE=bf16       the form of float32 sums between hosts (`--wire`)
    WEFT_DEBUG=1         compare every call on all ranks (`--debug`)
    WEFT_REPORT, WEFT_TRACE, WEFT_VERIFY                 see `watching/settings.py`

Torch hands settings to a group as its `pg_options`. A group made without them takes those of the world it belongs to,
and a world made without them those of the environment. Pure, and without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.collectives.choices import WIRES, ModeChoice, parse_mode, parse_wire
from weft.collectives.modes.messages.mpi_world import MpiOffer, offer_from
from weft.collectives.watching.settings import Watching, watching_from_env
from weft.secret import VARIABLE as SECRET_VARIABLE


@dataclass(frozen=True, kw_only=True)
class LauncherFacts:
    """Facts that a launcher told this process about its host and its run; empty or None where it told nothing."""

    world_size: int | None = None  # ranks of the whole run
    host_name: str = ""  # as people call this host
    host_index: int | None = None  # of this host among `host_count`
    host_count: int | None = None
    rack: str = ""  # of this host, by any name
    aisle: str = ""
    network_card: str = ""  # the interface that collectives shall use
    leader_address: str = ""  # of the host of rank 0
    secret: str = field(default="", repr=False)  # of the run, by which its workers know each other
    run_folder: str = ""  # where this run keeps its files, on hosts that have the folder
    mpi: MpiOffer = field(default_factory=MpiOffer)  # the MPI world that the launcher has put this process in


@dataclass(frozen=True, kw_only=True)
class CollectiveSettings:
    """The settings that a group of the backend "weft" is given when it is made."""

    mode: ModeChoice = field(default_factory=lambda: parse_mode("explore"))
    wire: str = WIRES[0]
    debug: bool = False
    watching: Watching = field(default_factory=Watching)
    launcher: LauncherFacts = field(default_factory=LauncherFacts)

    def __post_init__(self) -> None:
        parse_wire(self.wire)


def settings_from_env(environ: Mapping[str, str]) -> CollectiveSettings:
    """Read the settings of this process from the variables that its launcher, or its user, has set."""
    return CollectiveSettings(
        mode=parse_mode(environ.get("WEFT_MODE") or "explore"),
        wire=environ.get("WEFT_WIRE") or WIRES[0],
        debug=environ.get("WEFT_DEBUG", "0") not in ("", "0"),
        watching=watching_from_env(environ),
        launcher=facts_from_env(environ),
    )


def facts_from_env(environ: Mapping[str, str]) -> LauncherFacts:
    """Read what `weft run`, torchrun or mpirun say of this process."""
    return LauncherFacts(
        world_size=_number(environ.get("WORLD_SIZE")),
        host_name=environ.get("WEFT_HOST", ""),
        host_index=_number(environ.get("WEFT_HOST_INDEX") or environ.get("GROUP_RANK")),
        host_count=_number(environ.get("WEFT_NUM_HOSTS") or environ.get("GROUP_WORLD_SIZE")),
        rack=environ.get("WEFT_RACK", ""),
        aisle=environ.get("WEFT_AISLE", ""),
        network_card=environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0],
        leader_address=environ.get("MASTER_ADDR", ""),
        secret=environ.get(SECRET_VARIABLE, ""),
        run_folder=environ.get("WEFT_RUN_DIR", ""),
        mpi=offer_from(environ),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
