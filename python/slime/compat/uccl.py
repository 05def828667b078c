"""UCCL's `uccl.p2p` on Slime, for host memory.

This module defines what the documents leave open:

- Functions that return `success` return False, log the reason as a warning (logger "slime.compat"),
  and end after SLIME_COMPAT_TIMEOUT seconds (30), if the peer is dead, gone or slow. Unknown ids and
  lists of different lengths raise.
- A connection that has ended stays ended: its functions return False, and connect() makes another.
- A connection carries messages in both directions, in order. Either end may read and write the
  memory that the other one advertised.
- send() returns once a recv() of the peer has the bytes, which go from memory to memory. recv() takes
  one message, which may be shorter than `size`. A longer one fails at both ends, and writes nothing.
- What advertise() returns is opaque, has 64 bytes, and is valid until dereg() or the end of the
  process: a read or write with it fails then. With `out_buf`, a bytearray or another buffer of 64
  bytes, it writes them there and returns `success` alone.
- Arguments have the names that UCCL's Python module gives them, and those of its document (`dst`,
  `src`, `slot_item`, `mr_id_list`, ...).
- connect() without a port uses SLIME_COMPAT_PORT (7400) + remote_gpu_idx. An endpoint whose port is
  taken uses another one, and logs it: the metadata has it.
- An endpoint listens on this host only, until SLIME_COMPAT_TOKEN (or SLIME_COMPAT_INSECURE=1) is set:
  then on the address of the default route, or SLIME_COMPAT_HOST.
- `num_cpus` is ignored. A pointer to GPU memory is refused by reg().
"""

from __future__ import annotations

import functools
import ipaddress
import os
import struct
import sys
import threading
from collections import OrderedDict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union, cast

from slime import _slime
from slime._errors import AlreadyExists, Error, InvalidArgument, NotFound, Unavailable
from slime.compat import _common

p2p = sys.modules[__name__]  # for `from uccl import p2p`

_MAGIC = b"slime"
_FIFO_ITEM = struct.Struct("<QQIIQ5s27x")  # address, size, mr_id, -, offset in the region, magic
# Ended transfers whose outcome poll_async() still knows.
_ENDED_MOST = 65536

FifoItem = bytes


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _documented(**names: str) -> Callable[[_Function], _Function]:
    """Lets a function take arguments by other names, too: those of the document."""

    def mark(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            for theirs in names.keys() & named.keys():
                if names[theirs] in named:
                    raise TypeError(f"{function.__name__}() got {theirs} and {names[theirs]}, which are the same")
                named[names[theirs]] = named.pop(theirs)
            return function(*arguments, **named)

        call.documented = names  # type: ignore[attr-defined]
        return cast(_Function, call)

    return mark


class _Region(NamedTuple):
    memory: _slime.MemoryRegion
    begin: int
    size: int


class _Transfer(NamedTuple):
    future: Any
    finish: Callable[[Any], None]  # takes the future's value


class Endpoint:
    """One process's end of its connections. Thread: any."""

    def __init__(self, local_gpu_idx: int = 0, num_cpus: int = 4) -> None:
        if local_gpu_idx < 0 or num_cpus < 1:
            raise InvalidArgument(f"local_gpu_idx is {local_gpu_idx}, num_cpus is {num_cpus}")
        self._gpu = local_gpu_idx
        self._lock = threading.RLock()  # poll_async() holds it while it finishes a transfer
        self._last_id = 0
        self._connections: Dict[int, _common.Connection] = {}
        self._regions: Dict[int, _Region] = {}
        self._transfers: Dict[int, _Transfer] = {}
        self._ended: OrderedDict[int, bool] = OrderedDict()
        self._host = self._listen()

    def _listen(self) -> _common.Host:
        host, port, about = _common.own_address(), _common.base_port() + self._gpu, {"gpu": self._gpu}
        try:
            out = _common.Host("uccl", host, port, about)
        except AlreadyExists as error:
            _common.log.warning("port %s is taken (%s): the metadata has the one in use", port, error)
            out = _common.Host("uccl", host, 0, about)
        out.serve()
        return out

    # ---- connections

    def get_metadata(self) -> bytes:
        """Returns 10 bytes (22 with IPv6): the address, the port in network order, the GPU's index."""
        host, _, port = self._host.agent.address.rpartition(":")
        packed = ipaddress.ip_address(host.strip("[]")).packed
        return packed + struct.pack("!H", int(port)) + struct.pack("=i", self._gpu)

    get_endpoint_metadata = get_metadata

    @staticmethod
    def parse_metadata(metadata: bytes) -> Tuple[str, int, int]:
        """Returns (ip, port, gpu)."""
        if len(metadata) not in (10, 22):
            raise InvalidArgument(f"metadata of {len(metadata)} bytes, must have 10 or 22")
        ip, rest = metadata[:-6], metadata[-6:]
        return str(ipaddress.ip_address(ip)), struct.unpack("!H", rest[:2])[0], struct.unpack("=i", rest[2:])[0]

    def connect(
        self,
        remote_ip_addr: Any = None,
        remote_gpu_idx: int = 0,
        remote_port: int = -1,
        *,
        metadata: Optional[bytes] = None,
    ) -> Tuple[bool, int]:
        """Connects by address and GPU index, or by metadata. Returns (success, conn_id)."""
        if isinstance(remote_ip_addr, bytes):
            metadata = remote_ip_addr
        if metadata is not None:
            remote_ip_addr, remote_port, _ = self.parse_metadata(metadata)
        port = remote_port if remote_port > 0 else _common.base_port() + remote_gpu_idx
        host = f"[{remote_ip_addr}]" if ":" in remote_ip_addr else remote_ip_addr
        try:
            return True, self._add(self._host.connect(f"{host}:{port}"))
        except Error as error:
            _common.log.warning("connect to %s:%s: %s", host, port, error)
            return False, -1

    def accept(self, timeout: Optional[float] = None) -> Tuple[bool, str, int, int]:
        """Waits for an endpoint that connects; Ctrl-C ends it. Returns (success, its ip, its GPU's
        index, conn_id)."""
        try:
            connection = self._host.accept(timeout)
        except Error as error:
            _common.log.warning("accept: %s", error)
            return False, "", -1, -1
        ip = connection.about["address"].rpartition(":")[0]
        return True, ip.strip("[]"), connection.about["gpu"], self._add(connection)

    # ---- memory

    def reg(self, ptr: int, size: int) -> Tuple[bool, int]:
        """Registers memory, which stays alive and in place until dereg(). Returns (success, mr_id)."""
        try:
            memory = self._host.agent.register_address(ptr, size, _slime.Rights.READ_WRITE)
        except Error as error:
            _common.log.warning("reg: %s (memory of a GPU is not supported)", error)
            return False, -1
        with self._lock:
            mr_id = self._next_id()
            self._regions[mr_id] = _Region(memory, ptr, size)
        self._host.agent.publish(_name_of(mr_id), memory)
        return True, mr_id

    def regv(self, ptrs: Sequence[int], sizes: Sequence[int]) -> Tuple[bool, List[int]]:
        """Registers all, or nothing. Returns (success, mr_ids)."""
        ids: List[int] = []
        for ptr, size in zip(*_same_length(ptrs=ptrs, sizes=sizes)):
            done, mr_id = self.reg(ptr, size)
            if not done:
                for each in ids:
                    self.dereg(each)
                return False, []
            ids.append(mr_id)
        return True, ids

    def dereg(self, mr_id: int) -> bool:
        """Ends a registration. After it no peer touches the memory."""
        with self._lock:
            region = self._regions.pop(mr_id, None)
        if region is None:
            raise NotFound(f"there is no mr_id {mr_id}")
        self._host.agent.unpublish(_name_of(mr_id))
        region.memory.close()
        return True

    # ---- messages

    def send(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: Optional[bytes] = None) -> bool:
        return self._wait(lambda: self._sends(conn_id, [mr_id], [ptr], [size]))

    @_documented(mr_id_list="mr_id_v", ptr_list="data_ptr_v", size_list="size_v")
    def sendv(
        self, conn_id: int, mr_id_v: Sequence[int], data_ptr_v: Sequence[int], size_v: Sequence[int], num_iovs: int
    ) -> bool:
        """Sends each range as one message."""
        lists = _same_length(num_iovs, mr_id_v=mr_id_v, data_ptr_v=data_ptr_v, size_v=size_v)
        return self._wait(lambda: self._sends(conn_id, *lists))

    def send_async(
        self, conn_id: int, mr_id: int, ptr: int, size: int, meta: Optional[bytes] = None
    ) -> Tuple[bool, int]:
        return self._start(lambda: self._sends(conn_id, [mr_id], [ptr], [size])[0])

    def recv(self, conn_id: int, mr_id: int, ptr: int, size: int) -> bool:
        return self._wait(lambda: [self._receive(conn_id, mr_id, ptr, size)])

    @_documented(mr_id_list="mr_id_v", ptr_list="data_ptr_v", size_list="size_v")
    def recvv(
        self, conn_id: int, mr_id_v: Sequence[int], data_ptr_v: Sequence[int], size_v: Sequence[int], num_iovs: int
    ) -> bool:
        """Receives one message into each range."""
        lists = _same_length(num_iovs, mr_id_v=mr_id_v, data_ptr_v=data_ptr_v, size_v=size_v)
        return all(self.recv(conn_id, *each) for each in zip(*lists))

    def recv_async(self, conn_id: int, mr_id: int, ptr: int, size: int) -> Tuple[bool, int]:
        return self._start(lambda: self._receive(conn_id, mr_id, ptr, size))

    def poll_async(self, transfer_id: int) -> Tuple[bool, bool]:
        """Returns (success, is_done), any number of times: (False, True) for a transfer that failed."""
        with self._lock:
            if transfer_id in self._ended:
                return self._ended[transfer_id], True
            transfer = self._transfers.get(transfer_id)
            if transfer is None:
                raise NotFound(f"there is no transfer {transfer_id}, or it ended long ago")
            if not transfer.future.done():
                return True, False
            del self._transfers[transfer_id]
            done = self._ended[transfer_id] = _finish(transfer)
            while len(self._ended) > _ENDED_MOST:
                self._ended.popitem(last=False)
        return done, True

    # ---- one-sided transfers

    @_documented(addr="ptr", len="size")
    def advertise(
        self, conn_id: int, mr_id: int, ptr: int, size: int, out_buf: Any = None
    ) -> Union[bool, Tuple[bool, FifoItem]]:
        """Returns (success, what the peer needs to read and write the range), or writes that to
        `out_buf` and returns success."""
        item = self._item(conn_id, mr_id, ptr, size)
        if out_buf is None:
            return True, item
        _fill(out_buf, item)
        return True

    @_documented(mr_id_list="mr_id_v", addr_list="ptr_v", len_list="size_v", out_buf_list="out_buf_v")
    def advertisev(
        self,
        conn_id: int,
        mr_id_v: Sequence[int],
        ptr_v: Sequence[int],
        size_v: Sequence[int],
        out_buf_v: Any = None,
        num_iovs: int = -1,
    ) -> Union[bool, Tuple[bool, List[FifoItem]]]:
        """As advertise(), for several ranges. `out_buf_v` may be left out: num_iovs is fifth then."""
        if isinstance(out_buf_v, int):
            out_buf_v, num_iovs = None, out_buf_v
        lists = _same_length(num_iovs, mr_id_v=mr_id_v, ptr_v=ptr_v, size_v=size_v)
        items = [self._item(conn_id, *each) for each in zip(*lists)]
        if out_buf_v is None:
            return True, items
        for out_buf, item in zip(*_same_length(num_iovs, out_buf_v=out_buf_v, items=items)):
            _fill(out_buf, item)
        return True

    @_documented(dst="ptr", slot_item="meta")
    def read(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: FifoItem) -> bool:
        return self._wait(lambda: [self._one_sided("read", conn_id, [mr_id], [ptr], [size], [meta])])

    @_documented(src="ptr", slot_item="meta")
    def write(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: FifoItem) -> bool:
        return self._wait(lambda: [self._one_sided("write", conn_id, [mr_id], [ptr], [size], [meta])])

    @_documented(dst="ptr", slot_item="meta")
    def read_async(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: FifoItem) -> Tuple[bool, int]:
        return self._start(lambda: self._one_sided("read", conn_id, [mr_id], [ptr], [size], [meta]))

    @_documented(src="ptr", slot_item="meta")
    def write_async(self, conn_id: int, mr_id: int, ptr: int, size: int, meta: FifoItem) -> Tuple[bool, int]:
        return self._start(lambda: self._one_sided("write", conn_id, [mr_id], [ptr], [size], [meta]))

    @_documented(mr_id_list="mr_id_v", dst_list="ptr_v", size_list="size_v", slot_item_list="meta_blob_v")
    def readv(
        self,
        conn_id: int,
        mr_id_v: Sequence[int],
        ptr_v: Sequence[int],
        size_v: Sequence[int],
        meta_blob_v: Sequence[FifoItem],
        num_iovs: int,
    ) -> bool:
        lists = _same_length(num_iovs, mr_id_v=mr_id_v, ptr_v=ptr_v, size_v=size_v, meta_blob_v=meta_blob_v)
        return self._wait(lambda: [self._one_sided("read", conn_id, *lists)])

    @_documented(mr_id_list="mr_id_v", src_list="ptr_v", size_list="size_v", slot_item_list="meta_blob_v")
    def writev(
        self,
        conn_id: int,
        mr_id_v: Sequence[int],
        ptr_v: Sequence[int],
        size_v: Sequence[int],
        meta_blob_v: Sequence[FifoItem],
        num_iovs: int,
    ) -> bool:
        lists = _same_length(num_iovs, mr_id_v=mr_id_v, ptr_v=ptr_v, size_v=size_v, meta_blob_v=meta_blob_v)
        return self._wait(lambda: [self._one_sided("write", conn_id, *lists)])

    # ---- the end

    def close(self) -> None:
        """Closes all connections, and ends accept()."""
        self._host.close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- internal

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _add(self, connection: _common.Connection) -> int:
        with self._lock:
            conn_id = self._next_id()
            self._connections[conn_id] = connection
            return conn_id

    def _connection(self, conn_id: int) -> _common.Connection:
        found = self._connections.get(conn_id)
        if found is None:
            raise NotFound(f"there is no connection {conn_id}")
        return found

    def _region(self, mr_id: int, ptr: int, size: int) -> _Region:
        """Returns the registration, which must have the whole range."""
        found = self._regions.get(mr_id)
        if found is None:
            raise NotFound(f"there is no mr_id {mr_id}")
        if size < 0 or ptr < found.begin or ptr + size > found.begin + found.size:
            raise InvalidArgument(
                f"{size} bytes at {ptr} are not inside of mr_id {mr_id}: {found.size} bytes at {found.begin}"
            )
        return found

    def _item(self, conn_id: int, mr_id: int, ptr: int, size: int) -> FifoItem:
        self._connection(conn_id)
        region = self._region(mr_id, ptr, size)
        return _FIFO_ITEM.pack(ptr, size, mr_id, 0, ptr - region.begin, _MAGIC)

    def _sends(
        self, conn_id: int, mr_ids: Sequence[int], ptrs: Sequence[int], sizes: Sequence[int]
    ) -> List[_Transfer]:
        connection = self._connection(conn_id)
        return [
            _Transfer(connection.peer.sendv(connection.tag(0), [self._memory(*each)]), lambda _: None)
            for each in zip(mr_ids, ptrs, sizes)
        ]

    def _receive(self, conn_id: int, mr_id: int, ptr: int, size: int) -> _Transfer:
        connection = self._connection(conn_id)
        region = self._region(mr_id, ptr, 0)
        # UCCL's own tests receive with a size beyond the registered memory.
        most = min(size, region.begin + region.size - ptr)
        return _Transfer(
            connection.peer.recv_into(connection.tag(0), self._memory(mr_id, ptr, most)), lambda _: None
        )

    def _memory(self, mr_id: int, ptr: int, size: int) -> memoryview:
        region = self._region(mr_id, ptr, size)
        return memoryview(region.memory)[ptr - region.begin :][:size]

    def _one_sided(
        self,
        kind: str,
        conn_id: int,
        mr_ids: Sequence[int],
        ptrs: Sequence[int],
        sizes: Sequence[int],
        items: Sequence[FifoItem],
    ) -> _Transfer:
        connection = self._connection(conn_id)
        copies = []
        for mr_id, ptr, size, item in zip(mr_ids, ptrs, sizes, items):
            local = self._region(mr_id, ptr, size)
            if len(item) != _FIFO_ITEM.size:
                raise InvalidArgument(f"a FifoItem of {len(item)} bytes: advertise() of the peer makes one of 64")
            _, most, remote_id, _, offset, magic = _FIFO_ITEM.unpack(bytes(item))
            if magic != _MAGIC:
                raise InvalidArgument("this is no FifoItem of advertise()")
            if size > most:
                raise InvalidArgument(f"{kind} of {size} bytes: the peer has advertised {most}")
            remote = _remote_region(connection, remote_id)
            copies.append(_slime.Copy(local.memory, ptr - local.begin, remote, offset, size))
        start = connection.peer.read if kind == "read" else connection.peer.write
        return _Transfer(start(copies), lambda _: None)

    def _wait(self, start: Callable[[], List[_Transfer]]) -> bool:
        try:
            return all([_finish(each) for each in start()])
        except (InvalidArgument, NotFound):
            raise
        except Error as error:
            _common.log.warning("%s", error)
            return False

    def _start(self, start: Callable[[], _Transfer]) -> Tuple[bool, int]:
        try:
            transfer = start()
        except (InvalidArgument, NotFound):
            raise
        except Error as error:
            _common.log.warning("%s", error)
            return False, -1
        with self._lock:
            transfer_id = self._next_id()
            self._transfers[transfer_id] = transfer
            return True, transfer_id


def _fill(out_buf: Any, item: FifoItem) -> None:
    """Writes a FifoItem to a caller's buffer."""
    if isinstance(out_buf, bytearray):
        out_buf[:] = item
        return
    try:
        memoryview(out_buf).cast("B")[: len(item)] = item
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"out_buf is no bytearray and no writable buffer of {len(item)} bytes: {error}"
        ) from None


def _finish(transfer: _Transfer) -> bool:
    try:
        transfer.finish(transfer.future.result())
    except Error as error:
        _common.log.warning("%s", error)
        return False
    return True


def _remote_region(connection: _common.Connection, mr_id: int) -> _slime.RemoteRegion:
    """Returns the peer's registration. The agent remembers it as long as the connection lasts."""
    try:
        return connection.peer.region(_name_of(mr_id))
    except NotFound:
        raise Unavailable("the peer has ended the registration that it advertised") from None


def _name_of(mr_id: int) -> str:
    return f"mr-{mr_id}"


def _same_length(count: Optional[int] = None, **lists: Sequence[Any]) -> List[Sequence[Any]]:
    count = len(next(iter(lists.values()))) if count is None else count
    for name, each in lists.items():
        if len(each) != count:
            raise InvalidArgument(f"{name} has {len(each)} elements, not {count}")
    return list(lists.values())
