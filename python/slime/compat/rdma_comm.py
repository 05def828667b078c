"""KVTransferManager's `rdma_comm` on Slime, for host memory.

This module defines what the documents leave open:

- A decode communicator listens at `port`. A prefill communicator listens at no fixed port: it only
  connects.
- Both ends must have the same number of layers, and both or neither a value cache: connect() of
  others returns False.
- prefill_tp_size and prefill_tp_idx are the degree of tensor parallelism and the rank of this process,
  in both roles. The ends may have different degrees. block_bytes is of this rank, so both ends must
  have the same block_bytes * prefill_tp_size. All ranks have the same number of heads, rank 0 the
  first ones, and no head is repeated. In a block the heads come first (HND: heads, tokens, numbers),
  so a rank's block is one range of the whole block, from prefill_tp_idx * block_bytes on.
- write_cache() moves the heads that both ranks have to where the peer has them. connect() to a rank
  that has none of them returns False: of 4 prefill ranks and 2 decode ranks, 0 and 1 write to 0, 2 and
  3 write to 1. Of 1 prefill rank and 4 decode ranks, 0 writes to all 4.
- Without a value cache (MLA) every rank has all of the one latent cache: both ends must have the same
  block_bytes, and each rank may write to each rank.
- dst_tp_size of connect() is checked against what the peer says. 0: it is not checked.
- write_cache() returns 0 once all blocks of K and V are in the peer's memory, and -1 if that is not
  certain. It then has logged the reason as a warning (logger "slime.compat"). It ends after
  SLIME_COMPAT_TIMEOUT seconds (30), also if the peer is dead or stopped. No byte moves if an id is
  out of range: that, lists of different lengths and unknown layers raise.
- is_connected() is False once the connection is known to have ended; connect() then makes another.

The environment's variables: KVCACHE_RDMA_NICS (device: the one at gpu_idx modulo their number; not
needed), KVCACHE_RDMA_GID_INDEX, KVCACHE_IB_TIMEOUT, KVCACHE_RELAX_ORDERING and
KVCACHE_GDRCOPY_FLUSH_ENABLE set what they say where they are set, and Slime chooses otherwise.
KVCACHE_SOCKET_IFNAME names the interface that a decode communicator listens at.
KVCACHE_DEBUG_FILE and KVCACHE_ERROR_FILE get the messages of "slime.compat"; KVCACHE_DEBUG adds those
of the level debug.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from slime import _slime
from slime._errors import Error, InvalidArgument
from slime.compat import _common

# The variables that are settings of verbs, with their names there.
_NUMBERS = {"KVCACHE_RDMA_GID_INDEX": "gid_index", "KVCACHE_IB_TIMEOUT": "timeout"}
_SWITCHES = {"KVCACHE_RELAX_ORDERING": "relaxed_ordering", "KVCACHE_GDRCOPY_FLUSH_ENABLE": "flush_read"}


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


def _verbs_settings(gpu_idx: int) -> Optional[Dict[str, Union[int, bool, str]]]:
    out: Dict[str, Union[int, bool, str]] = {}
    nics = [each.strip() for each in os.environ.get("KVCACHE_RDMA_NICS", "").split(",") if each.strip()]
    if nics:
        out["device"] = nics[gpu_idx % len(nics)]
    out.update({name: os.environ[variable] for variable, name in _NUMBERS.items() if os.environ.get(variable)})
    out.update({name: _is_on(variable) for variable, name in _SWITCHES.items() if os.environ.get(variable)})
    return out or None


def _log_to_files() -> None:
    for variable, level in (("KVCACHE_DEBUG_FILE", logging.DEBUG), ("KVCACHE_ERROR_FILE", logging.WARNING)):
        path = os.environ.get(variable)
        if not path or any(getattr(each, "baseFilename", "") == os.path.abspath(path) for each in _common.log.handlers):
            continue
        handler = logging.FileHandler(path)
        handler.setLevel(level)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _common.log.addHandler(handler)
    if _is_on("KVCACHE_DEBUG"):
        _common.log.setLevel(logging.DEBUG)


class _Shape(NamedTuple):
    """What a communicator says about its caches. block_bytes: of this rank."""

    layers: int
    caches: int
    block_bytes: int
    block_number: int
    tp_size: int
    tp_idx: int

    @classmethod
    def of(cls, about: Dict[str, Any]) -> _Shape:
        """Reads what a peer says. A peer of a version without degrees has the degree 1."""
        return cls(*(about.get(name, default) for name, default in zip(cls._fields, (0, 0, 0, 0, 1, 0))))

    def begin(self) -> int:
        """Returns where the rank's bytes begin in the block of all ranks together."""
        return self.tp_idx * self.block_bytes if self.caches == 2 else 0

    def whole(self) -> int:
        """Returns the bytes of the block of all ranks together."""
        return self.tp_size * self.block_bytes if self.caches == 2 else self.block_bytes

    def __str__(self) -> str:
        return str(self._asdict())


class _Piece(NamedTuple):
    """The bytes of a block that two ranks share: `shared` units of `unit` bytes. A block has
    local_units or remote_units of them; the shared ones begin at local_first and remote_first."""

    unit: int
    shared: int
    local_units: int
    local_first: int
    remote_units: int
    remote_first: int

    @staticmethod
    def between(local: _Shape, remote: _Shape) -> _Piece:
        """Raises InvalidArgument, with both shapes in the text, if blocks cannot be written."""
        if (local.layers, local.caches, local.whole()) != (remote.layers, remote.caches, remote.whole()):
            raise InvalidArgument(f"the peer has {remote}, this communicator has {local}: they do not match")
        begin = max(local.begin(), remote.begin())
        end = min(local.begin() + local.block_bytes, remote.begin() + remote.block_bytes)
        if begin >= end:
            raise InvalidArgument(f"the peer has {remote}, this communicator has {local}: they share no head")
        # All boundaries of ranks are multiples of it.
        unit = math.gcd(local.block_bytes, remote.block_bytes)
        return _Piece(
            unit,
            (end - begin) // unit,
            local.block_bytes // unit,
            (begin - local.begin()) // unit,
            remote.block_bytes // unit,
            (begin - remote.begin()) // unit,
        )

    def local(self, ids: Sequence[int]) -> List[int]:
        """Returns the units of these local blocks."""
        return _units_of(ids, self.local_units, self.local_first, self.shared)

    def remote(self, ids: Sequence[int]) -> List[int]:
        return _units_of(ids, self.remote_units, self.remote_first, self.shared)


def _units_of(ids: Sequence[int], units: int, first: int, count: int) -> List[int]:
    return [int(each) * units + first + unit for each in ids for unit in range(count)]


class RDMACommunicator:
    """The memory of one process's KV cache, which prefill writes to and decode is written to.

    role: "prefill" or "decode". gpu_idx: picks one of KVCACHE_RDMA_NICS. port: text or number.
    local_key_cache, local_value_cache: the address of each layer's cache, of `block_number` blocks of
    `block_bytes`; no value cache: one latent cache. The memory stays in place until close().
    prefill_tp_size, prefill_tp_idx: the degree of tensor parallelism and the rank of this process, in
    both roles. Thread: any.
    """

    def __init__(
        self,
        role: str,
        gpu_idx: int,
        port: Union[str, int],
        local_key_cache: Sequence[int],
        local_value_cache: Sequence[int],
        block_number: int,
        block_bytes: int,
        prefill_tp_size: int = 1,
        prefill_tp_idx: int = 0,
    ) -> None:
        if role not in ("prefill", "decode"):
            raise InvalidArgument(f"role is {role!r}, must be 'prefill' or 'decode'")
        if block_number < 1 or block_bytes < 1 or not local_key_cache:
            raise InvalidArgument("block_number, block_bytes and the number of layers must be at least 1")
        if len(local_value_cache) not in (0, len(local_key_cache)):
            raise InvalidArgument(f"{len(local_key_cache)} layers of keys, {len(local_value_cache)} of values")
        if not 0 <= prefill_tp_idx < prefill_tp_size:
            raise InvalidArgument(f"prefill_tp_idx is {prefill_tp_idx}, of {prefill_tp_size} ranks")
        _log_to_files()
        layers = len(local_key_cache)
        caches = 2 if local_value_cache else 1
        self._shape = _Shape(layers, caches, block_bytes, block_number, prefill_tp_size, prefill_tp_idx)
        self._lock = threading.Lock()
        self._peers: Dict[Tuple[str, int], _Target] = {}
        interface = os.environ.get("KVCACHE_SOCKET_IFNAME", "")
        host = _common.address_of(interface) if interface else _common.own_address()
        listening = int(port) if role == "decode" else 0
        about = {**self._shape._asdict(), "role": role}
        self._host = _common.Host(
            "rdma_comm",
            host,
            listening,
            about,
            _verbs_settings(gpu_idx),
            keeps=False,
            optional=("tp_size", "tp_idx"),
        )
        # For each layer: its cache of keys, and of values where there is one.
        self._layers: List[List[_slime.MemoryRegion]] = [[] for _ in local_key_cache]
        try:
            for kind, cache in (("k", local_key_cache), ("v", local_value_cache)):
                for layer, pointer in enumerate(cache):
                    self._layers[layer].append(self._register(f"{kind}{layer}", int(pointer), role))
            self._host.serve()
        except BaseException:
            self.close()
            raise

    def _register(self, name: str, pointer: int, role: str) -> _slime.MemoryRegion:
        rights = _slime.Rights.READ_WRITE if role == "decode" else _slime.Rights.LOCAL
        region = self._host.agent.register_address(pointer, self._shape.block_number * self._shape.block_bytes, rights)
        if role == "decode":
            self._host.agent.publish(name, region)
        return region

    def connect(self, dst_ip: str, dst_port: Union[str, int], dst_tp_size: int = 0) -> bool:
        """Connects to a decode communicator; True at once if that is done already."""
        key = (dst_ip, int(dst_port))
        if self.is_connected(*key):
            return True
        try:
            target = _Target(self._host.connect(f"{dst_ip}:{dst_port}"), self._shape, dst_tp_size)
        except Error as error:
            _common.log.warning("connect to %s:%s: %s", dst_ip, dst_port, error)
            return False
        with self._lock:
            self._peers[key] = target
        _common.log.debug("connected to %s:%s", dst_ip, dst_port)
        return True

    def is_connected(self, dst_ip: str, dst_port: Union[str, int]) -> bool:
        target = self._peers.get((dst_ip, int(dst_port)))
        return target is not None and target.connection.alive()

    def write_cache(
        self,
        ip: str,
        port: Union[str, int],
        local_block_ids: Sequence[int],
        remote_block_ids: Sequence[int],
        layer_idx: int,
    ) -> int:
        """Writes blocks of one layer, K and V, to the peer's blocks. Returns 0, or -1."""
        target = self._peers.get((ip, int(port)))
        if target is None:
            _common.log.warning("write_cache: not connected to %s:%s", ip, port)
            return -1
        if not 0 <= layer_idx < len(self._layers):
            raise InvalidArgument(f"layer_idx is {layer_idx}, of {len(self._layers)} layers")
        if len(local_block_ids) != len(remote_block_ids):
            raise InvalidArgument(f"{len(local_block_ids)} local ids, {len(remote_block_ids)} remote ids")
        for ids, most in ((local_block_ids, self._shape.block_number), (remote_block_ids, target.block_number)):
            if len(ids) and not 0 <= min(ids) <= max(ids) < most:
                raise InvalidArgument(f"block ids from {min(ids)} to {max(ids)}, of {most} blocks")
        if not len(local_block_ids):
            return 0
        try:
            target.write(layer_idx, self._layers[layer_idx], local_block_ids, remote_block_ids)
        except Error as error:
            _common.log.warning("write_cache to %s:%s, layer %s: %s", ip, port, layer_idx, error)
            return -1
        return 0

    def close(self) -> None:
        """Ends all connections. After it no peer touches the memory."""
        self._host.close()

    def __enter__(self) -> RDMACommunicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Target:
    """A decode communicator that this one is connected to, with its caches."""

    def __init__(self, connection: _common.Connection, mine: _Shape, tp_size: int) -> None:
        theirs = _Shape.of(connection.about)
        if connection.about.get("role") != "decode":
            raise InvalidArgument("the peer is no decode communicator")
        if min(theirs[:5]) < 1 or not 0 <= theirs.tp_idx < theirs.tp_size:
            raise InvalidArgument(f"the peer has {theirs}")
        if tp_size not in (0, theirs.tp_size):
            raise InvalidArgument(f"dst_tp_size is {tp_size}, the peer has {theirs}")
        self.connection = connection
        self.block_number = theirs.block_number
        self._piece = _Piece.between(mine, theirs)

    def write(
        self, layer: int, local: List[_slime.MemoryRegion], local_ids: Sequence[int], remote_ids: Sequence[int]
    ) -> None:
        peer = self.connection.peer
        piece = self._piece
        # The agent remembers the regions as long as the connection lasts.
        remote = [peer.region(f"{kind}{layer}") for kind, _ in zip("kv", local)]
        units = piece.local(local_ids), piece.remote(remote_ids)
        futures: List[Any] = [
            peer.write_blocks(mine, theirs, *units, piece.unit) for mine, theirs in zip(local, remote)
        ]
        errors = [each.exception() for each in futures]  # waits for all of them
        for error in errors:
            if error is not None:
                raise error
