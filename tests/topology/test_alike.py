from dataclasses import replace

import pytest
from hypothesis import given
from tests.topology.machines import GIB, machine, machines

from weft.errors import TopologyError
from weft.topology.alike import HostDifference, differences, verify_alike
from weft.topology.host import Host, NetworkCard


@given(machines())
def test_a_machine_is_like_itself_whatever_its_name(host: Host) -> None:
    assert differences([host, replace(host, name="host2")]) == ()


@pytest.mark.parametrize(
    ("other", "what", "expected", "got"),
    [
        (machine("b", cores=(16,), accelerators=(0, 0, 0, 0), numa_per_socket=2), "sockets", "2", "1"),
        (machine("b", cores=(8, 8)), "cores per socket", "16", "8"),
        (machine("b", cores=(16, 8)), "cores per socket", "16", "16+8"),
        (machine("b", threads=1), "hardware threads per core", "2", "1"),
        (machine("b", numa_per_socket=2), "NUMA domains", "2", "4"),
        (machine("b", accelerators=(0, 0, 1)), "accelerators", "4", "3"),
        (machine("b", accelerators=()), "accelerators", "4", "0"),
        (machine("b", model="NVIDIA A100"), "accelerator model", "NVIDIA H200", "NVIDIA A100"),
        (machine("b", accelerator_bytes=80 * GIB), "accelerator memory", "140.0 GiB", "80.0 GiB"),
        (machine("b", memory_bytes=128 * GIB), "memory", "256.0 GiB", "128.0 GiB"),
    ],
)
def test_each_difference_is_told_once(other: Host, what: str, expected: str, got: str) -> None:
    assert differences([machine("a"), machine("c"), other]) == (HostDifference("b", what, expected, got),)


def test_what_does_not_matter() -> None:
    card = NetworkCard(name="eth0", addresses=("10.0.0.1",), mtu=9000)
    near = machine("b", memory_bytes=250 * GIB, accelerator_bytes=139 * GIB, cards=(card,))
    unknown = machine("c", memory_bytes=0, accelerator_bytes=0)
    assert differences([machine("a"), near, unknown]) == ()
    assert differences([]) == ()


def test_the_error_names_the_host_and_what_differs() -> None:
    hosts = [machine("host1"), machine("host2"), machine("host3", accelerators=(0, 0, 1))]
    with pytest.raises(TopologyError) as caught:
        verify_alike(hosts, allow_uneven=False)
    assert str(caught.value) == (
        "hosts must be alike, got host3: accelerators 3 (host1 has 4); "
        "mend the host list or use --allow-uneven"
    )
    verify_alike(hosts, allow_uneven=True)
    verify_alike(hosts[:2], allow_uneven=False)
