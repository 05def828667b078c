"""RDMAEndpoint: one end of a connection of two processes."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from slime import _slime
from slime._devices import devices
from slime._errors import InvalidArgument, NotFound, Unavailable
from slime._peer import Peer
from slime.compat import _common
from slime.compat.dlslime import _memory
from slime.compat.dlslime._transfers import Imms, Messages, SlimeFuture, SlimeImmRecvFuture

# Stands for a device where there is none.
NO_DEVICE = "slime"

Assignment = Sequence[Any]  # (local memory, remote memory, remote offset, local offset, length)


def available_nic() -> List[str]:
    """Returns the names of the RDMA devices with an active port; ["slime"] if there is none."""
    names = [each["name"] for each in devices() if any(port["state"] == "active" for port in each["ports"])]
    return names or [NO_DEVICE]


def device_settings(device_name: str, ib_port: int, link_type: str, num_qp: int) -> Optional[Dict[str, Any]]:
    """Checks the arguments that name a device. Returns the agent's settings; None: Slime picks."""
    if link_type not in ("RoCE", "Ethernet", "IB", "InfiniBand"):
        raise InvalidArgument(f"link_type is {link_type!r}, must be RoCE, Ethernet, IB or InfiniBand")
    if ib_port < 1 or num_qp < 1:
        raise InvalidArgument(f"ib_port is {ib_port}, num_qp is {num_qp}: both must be at least 1")
    if device_name not in ("", *available_nic()):
        raise NotFound(f"no RDMA device {device_name!r}; there are: {', '.join(available_nic())}")
    return {"device": device_name, "port": ib_port} if device_name not in ("", NO_DEVICE) else None


class RDMAEndpoint:
    """One end of a connection of two processes.

    device_name: one of available_nic(); empty: Slime picks. ib_port: from 1. link_type: "RoCE" or
    "Ethernet", or "IB" or "InfiniBand"; checked, otherwise ignored, as num_qp is. Thread: any.
    """

    def __init__(
        self, device_name: str = "", ib_port: int = 1, link_type: str = "RoCE", num_qp: int = 1, worker: Any = None
    ) -> None:
        verbs = device_settings(device_name, ib_port, link_type, num_qp)
        self._endpoint = _common.endpoint(verbs=verbs)
        self._lock = threading.RLock()
        self._memory = _memory.Memory(self._endpoint.agent)
        self._remote = _memory.Names()
        self._messages: Optional[Messages] = None
        self._peer_name = ""
        self._imms = Imms()
        self._endpoint.agent.on_imm(self._notified)

    # ---- memory

    def register_memory_region(self, name: Union[str, int], ptr: int, *range_: int) -> int:
        """Registers memory: (name, ptr, length) or (name, ptr, offset, length). Returns its number.

        The memory stays in place until the endpoint is closed. The same name and memory again: the
        same number. Raises AlreadyExists for the same name and other memory."""
        return self._memory.register(name, *_memory.range_of(ptr, range_))

    def mr_info(self) -> Dict[str, Dict[str, int]]:
        """Returns the registered memory by name. Has no keys."""
        return self._memory.info()

    # ---- the connection

    def endpoint_info(self) -> Dict[str, Any]:
        """Returns what connect() of the peer takes: JSON."""
        return {"slime": self._endpoint.info(), "mr_info": self.mr_info()}

    @property
    def local_endpoint_info(self) -> str:
        """endpoint_info() as text, as the first version has it."""
        return json.dumps(self.endpoint_info())

    def connect(self, info: Union[Dict[str, Any], str]) -> None:
        """Connects to the peer. Raises Error if it cannot be reached."""
        try:
            told = json.loads(info) if isinstance(info, (str, bytes)) else info
            where, memory = dict(told["slime"]), told.get("mr_info", {})
            names = sorted(memory, key=lambda name: memory[name]["handle"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"this is not the info of an endpoint: {error!r}") from None
        peer = self._endpoint.connect(where)  # type: ignore[arg-type]
        with self._lock:
            if self._messages is None or peer.connection != self._messages.peer.connection:
                self._messages, self._peer_name = Messages(peer), peer.info()["peer"]
            self._remote = _memory.Names()
            for name in names:
                self._remote.number(name)

    connect_to = connect

    def register_remote_memory_region(self, name: Union[str, int], info: Any = None) -> int:
        """Returns the number of the peer's memory with this name, for batches."""
        return self._remote.number(str(name))

    # ---- one-sided transfers

    def read(self, batch: Sequence[Assignment], stream: Any = None) -> SlimeFuture:
        """Reads a batch of (local memory, remote memory, remote offset, local offset, length)."""
        return self._one_sided(batch, lambda peer, copies: peer.read(copies))

    def write(self, batch: Sequence[Assignment], stream: Any = None) -> SlimeFuture:
        """Writes a batch; as read()."""
        return self._one_sided(batch, lambda peer, copies: peer.write(copies))

    def write_with_imm(self, batch: Sequence[Assignment], imm: int = 0, stream: Any = None) -> SlimeFuture:
        """Writes a batch, after which the peer's imm_recv() gets `imm`."""
        return self._one_sided(batch, lambda peer, copies: peer.write_with_imm(copies, imm))

    def imm_recv(self, stream: Any = None) -> SlimeImmRecvFuture:
        """Waits for the next notification of write_with_imm()."""
        return SlimeImmRecvFuture(lambda timeout: self._imms.take(self._connection, timeout))

    async def async_read_batch(
        self, mr_key: Union[str, int], target_offset: Sequence[int], source_offset: Sequence[int], length: int
    ) -> int:
        """Reads ranges of one length from the peer's memory with this name into the own."""
        if len(target_offset) != len(source_offset):
            raise InvalidArgument(f"{len(target_offset)} target offsets, {len(source_offset)} source offsets")
        return await self.read([(mr_key, mr_key, *each, length) for each in zip(target_offset, source_offset)])

    read_batch_async = async_read_batch

    async def read_async(self, mr_key: Union[str, int], target_offset: int, source_offset: int, length: int) -> int:
        return await self.async_read_batch(mr_key, [target_offset], [source_offset], length)

    # ---- messages

    def send(self, range_: Sequence[int], stream: Any = None) -> SlimeFuture:
        """Sends the bytes at (ptr, offset, length): done once a recv() of the peer has them."""
        ptr, offset, length = range_
        return self._connected().send(self._memory.view(ptr + offset, length))

    def recv(self, range_: Sequence[int], stream: Any = None) -> SlimeFuture:
        """Receives a message of exactly this length into (ptr, offset, length)."""
        ptr, offset, length = range_
        return self._connected().receive(self._memory.view(ptr + offset, length))

    async def send_async(self, mr_key: Union[str, int], offset: int, length: int) -> int:
        return await self._connected().send(self._memory.view(self._memory.address(mr_key, offset, length), length))

    async def recv_async(self, mr_key: Union[str, int], offset: int, length: int) -> int:
        return await self._connected().receive(self._memory.view(self._memory.address(mr_key, offset, length), length))

    # ---- the end

    def process(self) -> int:
        """Does nothing: operations go on by themselves."""
        return 0

    def shutdown(self) -> None:
        """Closes the endpoint: operations under way fail."""
        self._imms.end()
        self._endpoint.close()

    stop = shutdown
    close = shutdown

    def __enter__(self) -> RDMAEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # ---- internal

    def _notified(self, peer: Peer, imm: int) -> None:
        connection = peer.info().get("connection", 0)
        messages = self._messages
        # Its connection has ended since: that of the peer with this name.
        if not connection and messages is not None and peer.name == self._peer_name:
            connection = messages.peer.connection
        self._imms.put(connection, imm)

    def _connection(self) -> Optional[int]:
        # Notifications of earlier connections, and of other processes that know the address, are
        # dropped.
        messages = self._messages
        return None if messages is None else messages.peer.connection

    def _connected(self) -> Messages:
        messages = self._messages
        if messages is None:
            raise Unavailable("not connected: connect() comes first")
        return messages

    def _one_sided(self, batch: Sequence[Assignment], start: Callable[[Peer, Any], Any]) -> SlimeFuture:
        peer = self._connected().peer
        copies = []
        for local, remote, remote_offset, local_offset, length in batch:
            region = _memory.remote(peer, self._remote.name(remote))
            copies.append(_slime.Copy(self._memory.find(local).memory, local_offset, region, remote_offset, length))
        return SlimeFuture(start(peer, copies), lambda _: 0)
