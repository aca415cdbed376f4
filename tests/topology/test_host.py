import json
import subprocess
import sys

from hypothesis import given
from tests.topology.machines import machine, machines

from weft.topology.host import Host, NetworkCard


@given(machines())
def test_a_host_survives_the_wire(host: Host) -> None:
    assert Host.from_json(json.loads(json.dumps(host.to_json()))) == host


def test_the_card_with_an_address() -> None:
    cards = (
        NetworkCard(name="eth0", addresses=("10.0.0.1",)),
        NetworkCard(name="eth1", addresses=("10.0.1.1",)),
    )
    host = machine(cards=cards)
    assert host.card_with("10.0.1.1") == cards[1]
    assert host.card_with("10.0.2.1") is None


def test_importing_the_topology_loads_neither_torch_nor_psutil() -> None:
    modules = ["hostlist", "rankfile", "alike", "network", "accelerators", "detect", "tree"]
    code = f"import sys; {'; '.join(f'import weft.topology.{name}' for name in modules)}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "numpy", "psutil", "subprocess"} & set(loaded)
