"""slime.devices(): the RDMA adapters of this machine, with their fields. Later versions may add
keys."""

from __future__ import annotations

from typing import List, Optional, TypedDict

from slime import _slime
from slime._info import ErrorInfo


class RdmaGid(TypedDict):
    """One entry of a port's GID table.

    index: PeerAgent(verbs={"gid_index": ...}) picks it. gid: as an IPv6 address.
    type: "InfiniBand", "RoCE v1" or "RoCE v2". interface: the network interface; empty: none, or
        one of another network namespace. interface_up: whether it is up.
    """

    index: int
    gid: str
    type: str
    interface: str
    interface_up: bool


class RdmaPort(TypedDict):
    """One port of an adapter.

    port: from 1; PeerAgent(verbs={"port": ...}) picks it. state: "active", "down", ...
    link_layer: "Ethernet" (RoCE) or "InfiniBand". lid: InfiniBand only; 0: none.
    mtu, max_mtu: bytes. gigabits_per_s: nominal speed of the link; 0: unknown.
    gids: the entries of the GID table that are set.
    """

    port: int
    state: str
    link_layer: str
    lid: int
    mtu: int
    max_mtu: int
    gigabits_per_s: float
    gids: List[RdmaGid]


class RdmaDevice(TypedDict):
    """An RDMA adapter of this machine.

    name: "mlx5_0"; PeerAgent(verbs={"device": ...}) picks it.
    error: why the adapter cannot be used, and then it has no ports; None: it can be used.
    pci_address: "0000:3b:00.0"; empty: not on the PCI bus, as software devices are.
    numa_node: -1: unknown, or the machine has one node only.
    """

    name: str
    error: Optional[ErrorInfo]
    pci_address: str
    numa_node: int
    ports: List[RdmaPort]


def devices() -> List[RdmaDevice]:
    """Returns the RDMA adapters of this machine, as they are now.

    Empty if there is none, or if libibverbs is missing: `slime doctor` then says what to do. Opens
    each adapter, which takes milliseconds. Raises Error if the adapters cannot be listed. Thread:
    any.
    """
    return _slime.devices()
