"""The mpirun line for a plan: pure, for each of the mpiruns people have.

Open MPI 4 and 5 and MPICH's Hydra want the same things said in three languages.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address
from itertools import groupby
from typing import Literal

from weft.errors import UsageError
from weft.launch.engines.starter import adopt_argv, carried_names
from weft.launch.engines.tags import MPICH, MPICH_PATTERN, OPENMPI_4, OPENMPI_5, TagStyle
from weft.launch.plan import LaunchPlan

Family = Literal["openmpi", "mpich"]


@dataclass(frozen=True, kw_only=True)
class Mpirun:
    """One mpirun: where it is and which language it speaks."""

    path: str
    family: Family
    version: tuple[int, ...]

    @property
    def tags(self) -> TagStyle:
        if self.family == "mpich":
            return MPICH
        return OPENMPI_5 if self.version >= (5,) else OPENMPI_4

    def polite(self, number: int) -> int:
        """The signal that makes it give its workers this one: Open MPI passes only the user's on."""
        if self.family == "mpich":
            return number
        return signal.SIGUSR1 if number == signal.SIGINT else signal.SIGUSR2

    @property
    def binds(self) -> bool:
        """Return whether it binds workers to cores as a rank file says."""
        return self.family == "openmpi"


_VERSIONS: tuple[tuple[Family, str], ...] = (
    ("openmpi", r"\((?:Open MPI|OpenRTE|PRRTE)\) v?(\d+(?:\.\d+)*)"),
    ("mpich", r"HYDRA build details:\s+Version:\s+(\d+(?:\.\d+)*)"),
)


def parse_version(path: str, text: str) -> Mpirun:
    """Return what `mpirun --version` says."""
    for family, pattern in _VERSIONS:
        if match := re.search(pattern, text):
            version = tuple(map(int, match[1].split(".")))
            return Mpirun(path=path, family=family, version=version)
    first = next(iter(text.strip().splitlines()), "nothing")
    raise UsageError(
        f"mpirun must be that of Open MPI or MPICH, got {path} which says {first!r}; "
        "pip install 'weft[mpi]', or use --engine ssh"
    )


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The facts that an mpirun line needs besides the plan."""

    rankfile: str | None = None  # its path; None: bind nothing
    ssh: tuple[str, ...] | None = None  # the client and its options; None: all workers are on this machine
    head: tuple[str, str] | None = None  # our own address and card towards the hosts
    root: bool = False
    tcp: bool = False
    args: tuple[str, ...] = ()  # the user's own, each of one or more words


def needs_rankfile(plan: LaunchPlan) -> bool:
    """Return whether the workers have cores of their own, to be bound to."""
    placements = [worker.placement for host in plan.hosts for worker in host.workers]
    return plan.rankfile is not None and not any(place is None or place.shared for place in placements)


def mpirun_line(mpirun: Mpirun, plan: LaunchPlan, around: Surroundings) -> tuple[str, ...]:
    """The whole command."""
    if mpirun.family == "mpich":
        options = _mpich(plan, around)
    elif mpirun.version >= (5,):
        options = _openmpi_5(plan, around)
    else:
        options = _openmpi_4(plan, around)
    extra = [word for arg in around.args for word in shlex.split(arg)]
    return (mpirun.path, *options, *extra, *adopt_argv(plan))


def mpirun_variables(mpirun: Mpirun, around: Surroundings) -> dict[str, str]:
    """Return what mpirun must find in its own environment, at the end of it."""
    # The end matters: Hydra forgets the last variable it has (4.0.2 to 5.0.2), which is then one for itself alone.
    if mpirun.family == "mpich" and around.ssh:
        return {"HYDRA_LAUNCHER_EXTRA_ARGS": " ".join(around.ssh[1:])}
    return {}


def _openmpi_4(plan: LaunchPlan, around: Surroundings) -> list[str]:
    line = ["--allow-run-as-root"] if around.root else []
    line += ["--tag-output", "-n", str(plan.world_size), "-H", _slots(plan)]
    if around.rankfile:
        line += ["--rankfile", around.rankfile]
    else:
        line += ["--map-by", _dealt(plan), "--bind-to", "none"]
    if around.ssh:
        line += ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", " ".join(around.ssh)]
        line += ["--mca", "plm_rsh_no_tree_spawn", "1"]  # only we need the keys to the hosts
        if around.head and (control := _cards(plan, around.head)):
            line += ["--mca", "oob_tcp_if_include", control]
    return line + _openmpi_traffic(plan, around) + _openmpi_exports(plan)


def _openmpi_5(plan: LaunchPlan, around: Surroundings) -> list[str]:
    line = ["--allow-run-as-root"] if around.root else []
    line += ["--output", "tag", "-n", str(plan.world_size), "-H", _slots(plan)]
    if around.rankfile:
        line += ["--map-by", f"rankfile:file={around.rankfile}"]
    else:
        line += ["--map-by", _dealt(plan), "--bind-to", "none"]
    if around.ssh:
        line += ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", " ".join(around.ssh)]
        line += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
        if around.head and (control := _cards(plan, around.head)):
            line += ["--prtemca", "prte_if_include", control]
    return line + _openmpi_traffic(plan, around) + _openmpi_exports(plan)


def _openmpi_traffic(plan: LaunchPlan, around: Surroundings) -> list[str]:
    line = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"] if around.tcp else []
    cards = _cards(plan, None)
    if cards and (around.ssh or around.tcp):
        line += ["--mca", "btl_tcp_if_include", cards]
    return line


def _openmpi_exports(plan: LaunchPlan) -> list[str]:
    return [word for name in carried_names(plan) for word in ("-x", name)]


def _mpich(plan: LaunchPlan, around: Surroundings) -> list[str]:
    line = ["-prepend-pattern", MPICH_PATTERN, "-n", str(plan.world_size), "-hosts", _runs(plan)]
    line += ["-launcher", "ssh", "-launcher-exec", around.ssh[0]] if around.ssh else ["-launcher", "fork"]
    if around.ssh and around.head:
        line += ["-iface", around.head[1]]
    # The two networks MPICH is built on, each in its own words.
    card = _same([host.interface for host in plan.hosts])
    if card and (around.ssh or around.tcp):
        line += ["-genv", "FI_TCP_IFACE", card, "-genv", "UCX_NET_DEVICES", card]
    if around.tcp:
        line += ["-genv", "FI_PROVIDER", "tcp", "-genv", "UCX_TLS", "tcp,self"]
    return [*line, "-genvlist", ",".join(carried_names(plan))]


def _slots(plan: LaunchPlan) -> str:
    return ",".join(f"{host.name}:{len(host.workers)}" for host in plan.hosts)


def _dealt(plan: LaunchPlan) -> str:
    return "node" if plan.rank_order == "round-robin" else "slot"


def _runs(plan: LaunchPlan) -> str:
    """The hosts in the order of the ranks, neighbours together: `a:2,b:2`, or `a:1,b:1,a:1,b:1`."""
    hosts = [plan.host_of(rank) for rank in range(plan.world_size)]
    return ",".join(f"{host}:{len(list(same))}" for host, same in groupby(hosts))


def _cards(plan: LaunchPlan, head: tuple[str, str] | None) -> str | None:
    """The cards to keep to, in Open MPI's words: their name if all hosts call it the same, else their network."""
    ends = [(host.address, host.interface) for host in plan.hosts] + ([head] if head else [])
    return _same([card for _, card in ends]) or common_network([address for address, _ in ends])


def _same(names: Sequence[str | None]) -> str | None:
    return names[0] if len(set(names)) == 1 else None


def common_network(addresses: Sequence[str], widest: int = 12) -> str | None:
    """The narrowest IPv4 network that holds all addresses; None for one so wide that it would say nothing."""
    try:
        parsed = [ip_address(address) for address in addresses]
    except ValueError:  # a name: the hosts were not asked
        return None
    if not all(isinstance(address, IPv4Address) for address in parsed):
        return None
    numbers = [int(address) for address in parsed]
    prefix = 32 - (min(numbers) ^ max(numbers)).bit_length()
    return str(IPv4Network((min(numbers), prefix), strict=False)) if prefix >= widest else None
