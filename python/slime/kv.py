"""Moves blocks of paged KV caches between processes, such as prefill and decode. Copies weights
to many processes, and collects shards.

    cache = kv.Cache(agent, geometry)                     # in both processes
    remote = kv.connect(agent.peer("decode:0"), cache)
    remote.write_blocks([0, 1, 2], [9, 4, 11], request=7)

The two caches may have different degrees of tensor parallelism, numbers of blocks, orders and
layers: docs/guides/kv.md.

    broadcast = kv.Broadcast(agent, {"w1": w1, "w2": w2})  # the owner
    replica = kv.Replica(agent, {"w1": w1, "w2": w2})      # each reader
    replica.fetch(agent.peer("owner:0"))

Most readers read from other readers: docs/guides/weights.md.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from slime import _slime
from slime._broadcast import Broadcast, BroadcastInfo, Gather, Replica, Shard, Shards
from slime._errors import InvalidArgument, log_failure
from slime._move import Move, MoveProgress
from slime._slime import KvForm as Form
from slime._slime import KvGeometry as Geometry
from slime._slime import KvOrder as Order

_log = logging.getLogger("slime")


class Piece(NamedTuple):
    """Bytes of a block that are adjacent on both sides. Offsets are from the start of the block."""

    local_region: int
    remote_region: int
    local_offset: int
    remote_offset: int
    bytes: int


class Mapping(NamedTuple):
    """What two caches have in common.

    heads: the first head that both ranks have, and the number of heads. block_bytes: of one layer.
    """

    first_layer: int
    layers: int
    heads: Tuple[int, int]
    block_bytes: int
    pieces: List[Piece]


def map_blocks(local: Geometry, remote: Geometry) -> Mapping:
    """Computes the mapping of two geometries. Raises InvalidArgument, with both geometries in the
    text, if there is none."""
    first, layers, heads, block_bytes, pieces = _slime.kv_map_blocks(local, remote)
    return Mapping(first, layers, heads, block_bytes, [Piece(*each) for each in pieces])


def sources_of(to: Geometry, from_degree: int) -> List[int]:
    """Returns the ranks of a cache of degree `from_degree` that together have all heads of `to`,
    each head once."""
    return _slime.kv_sources_of(to, from_degree)


def targets_of(from_: Geometry, to_degree: int) -> List[int]:
    """Returns the ranks of a cache of degree `to_degree` that have `from_` among their sources.
    Empty: other ranks have the same heads, and write them."""
    return _slime.kv_targets_of(from_, to_degree)


class Cache(_slime.KvCache):
    """The paged KV cache of this process, which peers find with connect(). Thread: any.

    memory: for each layer, a list with the memory of each region of geometry.regions(), in order;
    for one region a layer, that memory alone is enough. Memory is a NumPy array, a CPU tensor, or any
    other contiguous memory that may be written, or an address, whose memory the caller keeps in
    place until close(). None: allocates zeroed memory, which needs NumPy.
    name: of the cache among those of its agent, which serves one cache of a name at a time.
    rights: of peers.

    Closed at the end of its `with` block.
    """

    def __init__(
        self,
        agent: _slime.PeerAgent,
        geometry: Geometry,
        memory: Optional[Sequence[Any]] = None,
        *,
        name: str = "cache",
        rights: _slime.Rights = _slime.Rights.READ_WRITE,
    ) -> None:
        regions = geometry.regions()
        if memory is None:
            new: Any = agent.empty  # type: ignore[attr-defined]
            flat = [
                new((geometry.blocks, size), "uint8", _slime.Rights.LOCAL)
                for _ in range(geometry.layers)
                for _, size in regions
            ]
        else:
            layers = [each if isinstance(each, (list, tuple)) else [each] for each in memory]
            if len(layers) != geometry.layers or any(len(layer) != len(regions) for layer in layers):
                raise InvalidArgument(
                    f"memory has {len(layers)} layers with {sorted({len(layer) for layer in layers})} regions; "
                    f"the geometry has {geometry.layers} with {[region for region, _ in regions]}"
                )
            flat = [each for layer in layers for each in layer]
        super().__init__(agent, geometry, flat, name, rights)
        self._agent = agent
        self._memory = flat
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._handlers: List[Callable[[int, int], Any]] = []

    def region(self, layer: int, region: int = 0) -> Any:
        """Returns the memory of a region of a layer: the layer by the model's number, the region by its
        number in geometry.regions(). Allocated memory is an array of blocks x block bytes."""
        regions = len(self.geometry.regions())
        index = layer - self.geometry.first_layer
        if not (0 <= index < self.geometry.layers and 0 <= region < regions):
            raise InvalidArgument(f"there is no region {region} of layer {layer} in: {self.geometry}")
        return self._memory[index * regions + region]

    def on_layer(self, handler: Callable[[int, int], Any]) -> None:
        """Calls handler(layer, request) once for each layer of a request, when all its heads have
        arrived, one at a time, on a thread of its own. Replaces an earlier handler. Call it before peers
        know of the cache."""
        with self._lock:
            self._handlers[:] = [handler]
            if self._thread is None:
                # The thread keeps neither the cache nor its memory.
                self._thread = threading.Thread(
                    target=_run_handler, args=(self._listen(), self._handlers), name="slime-kv", daemon=True
                )
                self._thread.start()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run_handler(queue: Any, handlers: List[Callable[[int, int], Any]]) -> None:
    while True:
        item = queue.take()
        if item is None:
            return
        try:
            handlers[0](*item)
        except BaseException as error:  # SystemExit too: the thread goes on
            log_failure(_log, error, "the on_layer handler failed")


class Remote:
    """The KV cache of a peer, as far as `cache` shares layers and heads with it: see connect().

    Belongs to one connection: once that has ended, transfers end with Unavailable, and connect()
    makes a new Remote. Thread: any.
    """

    def __init__(self, cache: Cache, remote: _slime.KvRemote) -> None:
        self._cache = cache
        self._remote = remote

    @property
    def cache(self) -> Cache:
        return self._cache

    @property
    def geometry(self) -> Geometry:
        """The peer's."""
        return self._remote.geometry

    @property
    def mapping(self) -> Mapping:
        return map_blocks(self._cache.geometry, self.geometry)

    def write_blocks(
        self,
        local_ids: Any,
        remote_ids: Any,
        *,
        layer: Optional[int] = None,
        request: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Writes blocks `local_ids` to the peer's blocks `remote_ids`, in order, and waits.

        Ids are NumPy arrays of integers, or sequences of ints. layer: the one layer to write, by the
        model's number; None: all that both caches have. request: a number, which the peer's
        wait_layer() and on_layer() get for each layer after its bytes have arrived. timeout: seconds,
        of the whole call; None: 30 s.

        Raises InvalidArgument before a byte moves if an id is outside its cache, the lists have
        different sizes, or `remote_ids` has an id twice; Unavailable if the peer is dead;
        DeadlineExceeded if it is frozen.
        """
        self.start_write(local_ids, remote_ids, layer=layer, request=request, timeout=timeout).wait()

    def read_blocks(
        self, local_ids: Any, remote_ids: Any, *, layer: Optional[int] = None, timeout: Optional[float] = None
    ) -> None:
        """Reads the peer's blocks `remote_ids` to blocks `local_ids`, like write_blocks()."""
        self.start_read(local_ids, remote_ids, layer=layer, timeout=timeout).wait()

    def start_write(
        self,
        local_ids: Any,
        remote_ids: Any,
        *,
        layer: Optional[int] = None,
        request: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Move:
        """Like write_blocks(), but does not wait: errors come from the Move. The blocks must not
        change until it is done."""
        return Move(
            self._remote._write_blocks(self._cache, self._cache._agent, local_ids, remote_ids, layer, request, timeout)
        )

    def start_read(
        self, local_ids: Any, remote_ids: Any, *, layer: Optional[int] = None, timeout: Optional[float] = None
    ) -> Move:
        """Like read_blocks(), but does not wait."""
        return Move(
            self._remote._read_blocks(self._cache, self._cache._agent, local_ids, remote_ids, layer, None, timeout)
        )


def connect(peer: _slime.Peer, cache: Cache, name: str = "", timeout: Optional[float] = None) -> Remote:
    """Connects a cache of this process to the cache `name` of a peer (empty: the name of `cache`).

    timeout: seconds; None: 30 s. Raises InvalidArgument, with both geometries in the text, if the
    caches cannot be mapped; NotFound if the peer has no such cache; Unavailable; DeadlineExceeded.
    """
    return Remote(cache, _slime.kv_connect(peer, cache, name, timeout))


__all__ = [
    "Broadcast",
    "BroadcastInfo",
    "Cache",
    "Form",
    "Gather",
    "Geometry",
    "Mapping",
    "Move",
    "MoveProgress",
    "Order",
    "Piece",
    "Remote",
    "Replica",
    "Shard",
    "Shards",
    "connect",
    "map_blocks",
    "sources_of",
    "targets_of",
]
