"""Mooncake's `mooncake.engine` on Slime, for host memory and the metadata server "P2PHANDSHAKE".

This module defines what the documents leave open:

- A segment is named "host:port", with get_rpc_port() of the other process. initialize() listens at
  the host of `local_hostname`, and at its port if that is free; it needs SLIME_COMPAT_TOKEN (or
  SLIME_COMPAT_INSECURE=1) for a host that others reach.
- protocol "rdma" with a `device_name` uses that device, the first of a list. Otherwise Slime picks:
  SLIME_PROVIDER. `transport_hint` is ignored.
- A function returns 0 once all bytes are in place, and else its documented value for a failure. It then
  has logged the reason as a warning (logger "slime.compat"). Each of its steps (to find the peer's
  memory, to move the bytes, to notify) ends after SLIME_COMPAT_TIMEOUT seconds (30), also if the peer
  is dead or stopped.
- Both sides must have registered the memory that a transfer names; ranges are checked before the
  first byte moves.
- After the connection to a peer has ended, the first transfer fails; the next one connects anew, and
  asks what the process at that address has registered.
- Functions with "on_cuda" in their names raise Unimplemented; register_memory() of GPU memory fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import socket
import sys
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import slime.compat._common as _common
from slime import _slime
from slime._agent import PeerAgent
from slime._errors import (
    AlreadyExists,
    DeadlineExceeded,
    Error,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unimplemented,
)
from slime._peer import Peer
from slime._service import method

engine = sys.modules[__name__]  # for `from mooncake import engine`

_SERVICE = "compat.mooncake"
# Notifications of peers that may wait for get_notifies(), and characters of theirs.
_NOTIFIES_MOST = 65536
_NOTIFIED_MOST = 64 << 20


class TransferOpcode(enum.Enum):
    """The direction of a transfer."""

    READ = 0
    WRITE = 1


class TransferNotify:
    """A notification that follows a transfer. name, msg: text."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg


class _Range(NamedTuple):
    begin: int
    size: int
    region: Any  # a MemoryRegion, or the name of the peer's region


class _Ranges:
    """Registered memory by address. Thread: one at a time."""

    def __init__(self, ranges: Sequence[_Range] = ()) -> None:
        self._all = list(ranges)

    def add(self, added: _Range) -> None:
        self._all.append(added)

    def take(self, begin: int) -> Optional[_Range]:
        """Removes the range that begins there; None: there is none."""
        for index, each in enumerate(self._all):
            if each.begin == begin:
                return self._all.pop(index)
        return None

    def find(self, begin: int, size: int) -> Optional[_Range]:
        """Returns a range that has all of these bytes."""
        for each in self._all:
            if size >= 0 and each.begin <= begin and begin + size <= each.begin + each.size:
                return each
        return None

    def all(self) -> List[_Range]:
        return list(self._all)


class _Segment:
    """Another process, over one connection: its registered memory, as it said last. Thread: the one
    inside of held()."""

    def __init__(self, peer: Peer) -> None:
        self._lock = threading.Lock()
        self.ranges = _Ranges()
        self._named = peer
        self._peer: Optional[Peer] = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lets one thread in. Another one waits, as long as a step may take. Raises DeadlineExceeded."""
        if not self._lock.acquire(timeout=_common.timeout()):
            raise DeadlineExceeded(f"another transfer still waits for {self._named.name}")
        try:
            yield
        finally:
            self._lock.release()

    @property
    def peer(self) -> Peer:
        """Returns the peer of the connection, after it has connected."""
        if self._peer is None:
            self._peer = self._named.of_connection()
        return self._peer

    def ask(self) -> None:
        """Asks for the registered memory."""
        told = self.peer.call(_SERVICE, "segments").result()
        try:
            ranges = [_Range(begin, size, name) for name, begin, size in told]
        except (TypeError, ValueError):
            ranges = [_Range(-1, -1, None)]
        if not all(type(each.begin) is int is type(each.size) and isinstance(each.region, str) for each in ranges):
            raise InvalidArgument(f"{self.peer.name} says about its memory {told!r:.200}")
        self.ranges = _Ranges(ranges)

    def locate(self, address: int, size: int) -> Tuple[_slime.RemoteRegion, int]:
        """Returns the region with these bytes, and the offset of the first. Raises NotFound."""
        found = self.ranges.find(address, size)
        if found is None:
            self.ask()
            found = self.ranges.find(address, size)
        if found is None:
            raise NotFound(f"{self.peer.name} has not registered {size} bytes at {address}")
        # The agent remembers the region as long as the connection lasts.
        return self.peer.region(found.region), address - found.begin


class _Service:
    def __init__(self, owner: TransferEngine) -> None:
        self._owner = owner

    @method
    def segments(self) -> List[Any]:
        return self._owner._shown()

    @method
    def notify(self, name: str, msg: str) -> None:
        self._owner._notified(name, msg)


class TransferEngine:
    """The registered memory of this process, and transfers to that of others. Thread: any."""

    def __init__(self) -> None:
        self._agent: Optional[PeerAgent] = None
        # Never held while this waits for a peer, which may be asking for this process's memory.
        self._lock = threading.Lock()
        self._ranges = _Ranges()
        self._count = 0
        self._segments: Dict[str, _Segment] = {}
        self._batches: Dict[int, Tuple[str, Any]] = {}  # target, future
        self._notifies: List[TransferNotify] = []
        self._notified_length = 0  # characters of these

    # ---- the start and the end

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Starts. Returns 0, or -1."""
        return self._told(lambda: self._start(local_hostname, metadata_server, protocol, device_name))

    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str
    ) -> int:
        """As initialize(); metadata_type: ignored."""
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    def _start(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> None:
        if self._agent is not None:
            raise AlreadyExists("initialize() was called before")
        if metadata_server != "P2PHANDSHAKE":
            raise Unimplemented(f"the metadata server {metadata_server!r}: only P2PHANDSHAKE, which needs none")
        host, _, port = local_hostname.rpartition(":") if ":" in local_hostname else (local_hostname, "", "0")
        try:
            host = socket.gethostbyname(host.strip("[]"))
        except OSError as error:
            raise NotFound(f"local_hostname {local_hostname!r}: {error}") from None
        device = device_name.split(",")[0].strip()
        options = {**_common.agent_options(), "verbs": {"device": device} if protocol == "rdma" and device else None}
        try:
            agent = PeerAgent(listen=f"{host}:{port}", **options)
        except AlreadyExists:
            agent = PeerAgent(listen=f"{host}:0", **options)
        agent.serve(_Service(self), _SERVICE, workers=1)
        self._agent = agent

    def get_rpc_port(self) -> int:
        """Returns the port of this process, for the name of its segment; 0 before initialize()."""
        return 0 if self._agent is None else int(self._agent.address.rpartition(":")[2])

    def get_engine(self) -> TransferEngine:
        return self

    def close(self) -> None:
        """Ends. After it no peer touches the memory."""
        if self._agent is not None:
            self._agent.close()

    def __enter__(self) -> TransferEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- memory

    def register_memory(self, buffer_addr: int, capacity: int) -> int:
        """Registers memory, which stays in place until unregister_memory(). Returns 0, or -1."""

        def register() -> None:
            region = self._started().register_address(buffer_addr, capacity, _slime.Rights.READ_WRITE)
            self._add(buffer_addr, region, capacity)

        return self._told(register)

    def unregister_memory(self, buffer_addr: int) -> int:
        """Ends a registration. Returns 0, or -1."""
        return self._told(lambda: self._remove(buffer_addr))

    def batch_register_memory(self, buffer_addresses: Sequence[int], capacities: Sequence[int]) -> int:
        """Registers all, or nothing. Returns 0, or -1."""
        if len(buffer_addresses) != len(capacities):
            raise InvalidArgument(f"{len(buffer_addresses)} addresses, {len(capacities)} capacities")
        done = []
        for address, capacity in zip(buffer_addresses, capacities):
            if self.register_memory(address, capacity) != 0:
                self.batch_unregister_memory(done)
                return -1
            done.append(address)
        return 0

    def batch_unregister_memory(self, buffer_addresses: Sequence[int]) -> int:
        return min([self.unregister_memory(each) for each in buffer_addresses], default=0)

    def allocate_managed_buffer(self, length: int) -> int:
        """Allocates registered memory. Returns its address, or 0."""
        try:
            region = self._started().allocate(length, _slime.Rights.READ_WRITE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memoryview(region)))
            self._add(address, region, length)
        except Error as error:
            _common.log.warning("allocate_managed_buffer: %s", error)
            return 0
        return address

    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        return self.unregister_memory(buffer_addr)

    def write_bytes_to_buffer(self, dest_address: int, src_ptr: bytes, length: int) -> int:
        """Copies `length` bytes to registered memory of this process. Returns 0, or -1."""

        def copy() -> None:
            self._local(dest_address, length)
            if len(src_ptr) < length:
                raise InvalidArgument(f"{length} bytes of {len(src_ptr)}")
            ctypes.memmove(dest_address, bytes(src_ptr), length)

        return self._told(copy)

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """Returns `length` bytes of registered memory of this process."""
        self._local(source_address, length)
        return ctypes.string_at(source_address, length)

    def get_first_buffer_address(self, segment_name: str) -> int:
        """Returns the lowest registered address of another process, or 0."""
        try:
            segment = self._segment(segment_name)
            with segment.held():
                segment.ask()
                return min((each.begin for each in segment.ranges.all()), default=0)
        except Error as error:
            _common.log.warning("%s: %s", segment_name, error)
            return 0

    # ---- transfers that are waited for

    def transfer_sync_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, TransferOpcode.WRITE)

    def transfer_sync_read(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        return self.transfer_sync(target_hostname, buffer, peer_buffer_address, length, TransferOpcode.READ)

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        return self.batch_transfer_sync(target_hostname, [buffer], [peer_buffer_address], [length], opcode, notify)

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        return self.batch_transfer_sync(
            target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.WRITE
        )

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        return self.batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.READ)

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """Moves all ranges as one operation. Returns 0, or -1."""

        def move() -> None:
            try:
                self._begin(target_hostname, buffers, peer_buffer_addresses, lengths, opcode).result()
            except NotFound:  # the peer may have registered the memory anew
                self._forget(target_hostname)
                self._begin(target_hostname, buffers, peer_buffer_addresses, lengths, opcode).result()
            if notify is not None:
                segment = self._segment(target_hostname)
                with segment.held():
                    peer = segment.peer
                peer.call(_SERVICE, "notify", notify.name, notify.msg).result()

        done = self._told(move)
        if done != 0:
            self._forget(target_hostname)
        return done

    # ---- transfers that go on

    def transfer_submit_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Returns a batch id, or -1."""
        return self._submit(target_hostname, [buffer], [peer_buffer_address], [length], TransferOpcode.WRITE) or -1

    def transfer_check_status(self, batch_id: int) -> int:
        """Returns 1: done, 0: under way, -1: failed, -2: its time was over. A batch id that has ended
        is unknown from then on."""
        with self._lock:
            if batch_id not in self._batches:
                raise NotFound(f"there is no batch {batch_id}")
            target, future = self._batches[batch_id]
            if not future.done():
                return 0
            del self._batches[batch_id]
        error = future.exception()
        if error is None:
            return 1
        self._forget(target)
        _common.log.warning("batch %s: %s", batch_id, error)
        return -2 if isinstance(error, DeadlineExceeded) else -1

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.WRITE)

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, TransferOpcode.READ)

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """Returns a batch id, or 0."""
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, opcode)

    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int:
        """Waits for all. Returns 0, or -1 if one of them failed."""
        with self._lock:
            found = [self._batches.pop(each, None) for each in batch_ids]
        failed = False
        for batch_id, each in zip(batch_ids, found):
            error = "unknown" if each is None else each[1].exception()
            if error is not None:
                failed = True
                _common.log.warning("batch %s: %s", batch_id, error)
                self._forget(each[0] if each is not None else "")
        return -1 if failed else 0

    def get_notifies(self) -> List[TransferNotify]:
        """Returns the notifications that have come since the last call."""
        with self._lock:
            out, self._notifies, self._notified_length = self._notifies, [], 0
        return out

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_on_cuda"):
            raise AttributeError(f"'TransferEngine' object has no attribute {name!r}")

        def refuse(*_: Any, **__: Any) -> None:
            raise Unimplemented(f"{name}: memory of a GPU is not supported")

        return refuse

    # ---- internal

    def _started(self) -> PeerAgent:
        if self._agent is None:
            raise InvalidArgument("initialize() comes first")
        return self._agent

    def _told(self, work: Any) -> int:
        """Returns 0, or -1 after an Error, which it logs."""
        try:
            work()
        except Error as error:
            _common.log.warning("%s", error)
            return -1
        return 0

    def _add(self, address: int, region: _slime.MemoryRegion, size: int) -> None:
        with self._lock:
            self._count += 1
            name = f"mr-{self._count}"
            self._ranges.add(_Range(address, size, (name, region)))
        self._started().publish(name, region)

    def _remove(self, address: int) -> None:
        with self._lock:
            found = self._ranges.take(address)
        if found is None:
            raise NotFound(f"no memory at {address} was registered")
        name, region = found.region
        self._started().unpublish(name)
        region.close()

    def _shown(self) -> List[Any]:
        with self._lock:
            return [[each.region[0], each.begin, each.size] for each in self._ranges.all()]

    def _notified(self, name: Any, msg: Any) -> None:
        if not isinstance(name, str) or not isinstance(msg, str):
            raise InvalidArgument("a notification is two texts")
        with self._lock:
            length = self._notified_length + len(name) + len(msg)
            if len(self._notifies) >= _NOTIFIES_MOST or length > _NOTIFIED_MOST:
                raise ResourceExhausted(f"{len(self._notifies)} notifications wait for get_notifies()")
            self._notifies.append(TransferNotify(name, msg))
            self._notified_length = length

    def _segment(self, name: str) -> _Segment:
        agent = self._started()
        with self._lock:
            if name not in self._segments:
                self._segments[name] = _Segment(agent.peer(name))
            return self._segments[name]

    def _forget(self, name: str) -> None:
        with self._lock:
            self._segments.pop(name, None)

    def _local(self, address: int, size: int) -> _Range:
        with self._lock:
            found = self._ranges.find(address, size)
        if found is None:
            raise NotFound(f"{size} bytes at {address} were not registered")
        return found

    def _begin(
        self,
        target: str,
        buffers: Sequence[int],
        addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
    ) -> Any:
        if not len(buffers) == len(addresses) == len(lengths):
            raise InvalidArgument(f"{len(buffers)} buffers, {len(addresses)} addresses, {len(lengths)} lengths")
        segment = self._segment(target)
        copies = []
        with segment.held():
            for buffer, address, length in zip(buffers, addresses, lengths):
                mine = self._local(buffer, length)
                theirs, offset = segment.locate(address, length)
                copies.append(_slime.Copy(mine.region[1], buffer - mine.begin, theirs, offset, length))
            peer = segment.peer
        return peer.read(copies) if opcode == TransferOpcode.READ else peer.write(copies)

    def _submit(
        self,
        target: str,
        buffers: Sequence[int],
        addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
    ) -> int:
        try:
            future = self._begin(target, buffers, addresses, lengths, opcode)
        except Error as error:
            _common.log.warning("%s: %s", target, error)
            self._forget(target)
            return 0
        with self._lock:
            self._count += 1
            self._batches[self._count] = (target, future)
            return self._count
