"""The endpoint of DLSlime's `dlslime`, also known as the Slime Transfer Engine, on Slime, for host
memory.

This module defines what the documents leave open:

- `available_nic()` on a machine without an active RDMA port returns ["slime"], a device that stands for
  shared memory and TCP.
- Memory is found by the name that both ends gave to it. register_memory_region() returns its number,
  which a batch may use in place of the name.
- In a batch `target_offset` is in the peer's memory and `source_offset` in the own, for reads and
  writes.
- Messages arrive in order. A recv takes one message of exactly its length: another length is an
  error at the receiver, nothing is written, and the message is the next recv's.
- wait() raises if the operation failed, if the peer is dead or gone, or after SLIME_COMPAT_TIMEOUT
  seconds (30). It never reports as done what did not arrive.
- An endpoint has one peer, over one connection. Once that has ended, operations raise Unavailable, until
  connect(), which may also take the info of another process.
"""

from __future__ import annotations

import ctypes
import json
import queue
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from slime import _slime
from slime._devices import devices
from slime._endpoint import Endpoint
from slime._errors import DeadlineExceeded, Error, InvalidArgument, NotFound, Unavailable
from slime._peer import Peer
from slime.compat import _common

# Stands for a device where there is none.
_NO_DEVICE = "slime"
_MESSAGES = 0  # tag
# Notifications that may wait for imm_recv().
_IMMS_MOST = 65536
# Numbers of memory begin here: names may be numbers, too, and mean another thing.
_FIRST_NUMBER = 1 << 40

Assignment = Sequence[Any]  # (local memory, remote memory, remote offset, local offset, length)


def available_nic() -> List[str]:
    """Returns the names of the RDMA devices with an active port; ["slime"] if there is none."""
    names = [each["name"] for each in devices() if any(port["state"] == "active" for port in each["ports"])]
    return names or [_NO_DEVICE]


avaliable_nic = available_nic  # as the first version spells it


class _Region(NamedTuple):
    memory: _slime.MemoryRegion
    address: int
    size: int


class SlimeFuture:
    """An operation under way. Thread: any."""

    def __init__(self, future: Any, finish: Callable[[Any], Any]) -> None:
        self._future = future
        self._finish = finish
        self._lock = threading.Lock()
        self._outcome: Any = None
        self._error: Optional[Error] = None

    def done(self) -> bool:
        """Returns whether wait() would return at once."""
        return self._error is not None or self._future.done()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end. Returns 0; raises Error if the operation failed. May be called again."""
        value = self._future.result(timeout)
        with self._lock:
            if self._error is None and self._outcome is None:
                try:
                    self._outcome = self._finish(value)
                except Error as error:
                    self._error = error
            if self._error is not None:
                raise self._error
            return self._outcome

    async def _awaited(self) -> Any:
        await self._future
        return self.wait()

    def __await__(self) -> Any:
        return self._awaited().__await__()


class SlimeImmRecvFuture:
    """A notification that is waited for. Thread: any."""

    def __init__(self, endpoint: RDMAEndpoint) -> None:
        self._endpoint = endpoint
        self._imm: Optional[int] = None

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the notification. Returns 0."""
        if self._imm is None:
            self._imm = self._endpoint._next_imm(timeout)
        return 0

    def imm_data(self) -> int:
        """Returns the number of the notification, after wait()."""
        if self._imm is None:
            raise InvalidArgument("imm_data() comes after wait()")
        return self._imm


class RDMAEndpoint:
    """One end of a connection of two processes.

    device_name: one of available_nic(); empty: Slime picks. ib_port: from 1. link_type: "RoCE" or
    "Ethernet", or "IB" or "InfiniBand"; checked, otherwise ignored, as num_qp is. Thread: any.
    """

    def __init__(
        self, device_name: str = "", ib_port: int = 1, link_type: str = "RoCE", num_qp: int = 1, worker: Any = None
    ) -> None:
        if link_type not in ("RoCE", "Ethernet", "IB", "InfiniBand"):
            raise InvalidArgument(f"link_type is {link_type!r}, must be RoCE, Ethernet, IB or InfiniBand")
        if ib_port < 1 or num_qp < 1:
            raise InvalidArgument(f"ib_port is {ib_port}, num_qp is {num_qp}: both must be at least 1")
        if device_name not in ("", *available_nic()):
            raise NotFound(f"no RDMA device {device_name!r}; there are: {', '.join(available_nic())}")
        picks = device_name not in ("", _NO_DEVICE)
        self._endpoint = _common.endpoint(verbs={"device": device_name, "port": ib_port} if picks else None)
        self._lock = threading.RLock()
        self._regions: Dict[str, _Region] = {}
        self._names: List[str] = []  # by number
        self._peer: Optional[Peer] = None
        self._remote_names: List[str] = []
        self._late: List[bytes] = []  # messages whose length no recv has asked for yet
        # Notifications, each with the id of its connection; None: the endpoint is closed.
        self._imms: queue.Queue[Optional[Tuple[int, int]]] = queue.Queue(_IMMS_MOST)
        self._endpoint.agent.on_imm(self._notified)

    # ---- memory

    def register_memory_region(self, name: Union[str, int], ptr: int, *range_: int) -> int:
        """Registers memory: (name, ptr, length) or (name, ptr, offset, length). Returns its number.

        The memory stays in place until the endpoint is closed. The same name and memory again: the
        same number. Raises AlreadyExists for the same name and other memory."""
        if len(range_) not in (1, 2):
            raise TypeError("register_memory_region(name, ptr[, offset], length)")
        address, size = ptr + (range_[0] if len(range_) == 2 else 0), range_[-1]
        key = str(name)
        with self._lock:
            known = self._regions.get(key)
            if known is not None and (known.address, known.size) == (address, size):
                return _FIRST_NUMBER + self._names.index(key)
            memory = self._endpoint.agent.register_address(address, size, _slime.Rights.READ_WRITE)
            try:
                self._endpoint.agent.publish(_published(key), memory)
            except Error:
                memory.close()
                raise
            self._regions[key] = _Region(memory, address, size)
            self._names.append(key)
            return _FIRST_NUMBER + len(self._names) - 1

    def mr_info(self) -> Dict[str, Dict[str, int]]:
        """Returns the registered memory by name. Has no keys."""
        with self._lock:
            return {
                name: {"handle": _FIRST_NUMBER + number, "addr": self._regions[name].address, "length": self._regions[name].size}
                for number, name in enumerate(self._names)
            }

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
            if self._peer is None or peer.connection != self._peer.connection:
                self._late.clear()
            self._peer, self._remote_names = peer, names

    connect_to = connect

    def register_remote_memory_region(self, name: Union[str, int], info: Any = None) -> int:
        """Returns the number of the peer's memory with this name, for batches."""
        with self._lock:
            key = str(name)
            if key not in self._remote_names:
                self._remote_names.append(key)
            return _FIRST_NUMBER + self._remote_names.index(key)

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
        return SlimeImmRecvFuture(self)

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
        """Sends the bytes at (ptr, offset, length)."""
        ptr, offset, length = range_
        return self._send(ptr + offset, length)

    def recv(self, range_: Sequence[int], stream: Any = None) -> SlimeFuture:
        """Receives a message of exactly this length into (ptr, offset, length)."""
        ptr, offset, length = range_
        return self._receive(ptr + offset, length)

    async def send_async(self, mr_key: Union[str, int], offset: int, length: int) -> int:
        return await self._send(self._address(mr_key, offset, length), length)

    async def recv_async(self, mr_key: Union[str, int], offset: int, length: int) -> int:
        return await self._receive(self._address(mr_key, offset, length), length)

    # ---- the end

    def process(self) -> int:
        """Does nothing: operations go on by themselves."""
        return 0

    def shutdown(self) -> None:
        """Closes the endpoint: operations under way fail."""
        self._imms_end()
        self._endpoint.close()

    stop = shutdown
    close = shutdown

    def __enter__(self) -> RDMAEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # ---- internal

    def _imms_end(self) -> None:
        try:
            self._imms.put_nowait(None)
        except queue.Full:
            pass

    def _notified(self, peer: Peer, imm: int) -> None:
        self._imms.put((peer.info().get("connection", 0), imm))

    def _next_imm(self, timeout: Optional[float]) -> int:
        until = time.monotonic() + (_common.timeout() if timeout is None else timeout)
        while True:
            try:
                notified = self._imms.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise DeadlineExceeded("no notification has come") from None
            if notified is None:
                self._imms_end()
                raise Unavailable("the endpoint is closed")
            # Drops those of earlier connections, and of other processes that know the address.
            if self._peer is None or notified[0] == self._peer.connection:
                return notified[1]

    def _connected(self) -> Peer:
        peer = self._peer
        if peer is None:
            raise Unavailable("not connected: connect() comes first")
        return peer

    def _local(self, key: Union[str, int]) -> _Region:
        with self._lock:
            found = self._regions.get(_named(key, self._names))
        if found is None:
            raise NotFound(f"no memory was registered as {key!r}")
        return found

    def _address(self, key: Union[str, int], offset: int, length: int) -> int:
        region = self._local(key)
        if offset < 0 or length < 0 or offset + length > region.size:
            raise InvalidArgument(f"{length} bytes at offset {offset} are not inside of {key!r}: {region.size} bytes")
        return region.address + offset

    def _remote_region(self, peer: Peer, key: Union[str, int]) -> _slime.RemoteRegion:
        with self._lock:
            name = _named(key, self._remote_names)
        # The agent remembers it as long as the connection lasts.
        return peer.region(_published(name))

    def _one_sided(self, batch: Sequence[Assignment], start: Callable[[Peer, Any], Any]) -> SlimeFuture:
        peer = self._connected()
        copies = []
        for local, remote, remote_offset, local_offset, length in batch:
            region = self._local(local)
            copies.append(
                _slime.Copy(region.memory, local_offset, self._remote_region(peer, remote), remote_offset, length)
            )
        return SlimeFuture(start(peer, copies), lambda _: 0)

    def _send(self, address: int, length: int) -> SlimeFuture:
        peer = self._connected()
        data = (ctypes.c_char * length).from_address(address)
        return SlimeFuture(peer.send(_MESSAGES, data), lambda _: 0)

    def _receive(self, address: int, length: int) -> SlimeFuture:
        with self._lock:
            late = self._late.pop(0) if self._late else None

        def finish(data: bytes) -> int:
            if len(data) != length:
                with self._lock:
                    self._late.append(data)
                raise InvalidArgument(f"recv of {length} bytes: the next message has {len(data)}, and waits")
            ctypes.memmove(address, bytes(data), length)
            return 0

        if late is not None:
            return SlimeFuture(_common.Ended(late), finish)
        return SlimeFuture(self._connected().recv(_MESSAGES), finish)


def _named(key: Union[str, int], names: Sequence[str]) -> str:
    """Returns the name that a name or a number of register_memory_region() means."""
    number = key - _FIRST_NUMBER if isinstance(key, int) else -1
    return names[number] if 0 <= number < len(names) else str(key)


def _published(name: str) -> str:
    return f"mr-{name.encode().hex()}"
