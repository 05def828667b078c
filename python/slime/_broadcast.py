"""slime.kv: copies of weights for many readers, and shards."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from slime import _slime
from slime._errors import InvalidArgument
from slime._move import Move


class BroadcastInfo(NamedTuple):
    """The state of a broadcast. version: 0 while the memory is changed. from_owner: readers that have
    the owner as their parent. bytes_out: that readers have read from the owner, as they say, in all.
    moves: how often readers asked for another parent, in all."""

    version: int
    readers: int
    complete: int
    from_owner: int
    total_bytes: int
    bytes_out: int
    moves: int


class Broadcast(_slime.KvBroadcast):
    """The owner's side of a broadcast: memory that many readers copy, most of them from each other.
    Thread: any.

    parts: the memory by name: NumPy arrays, CPU tensors, or any other contiguous memory. It changes
    only inside `with broadcast.update()`. name: of the broadcast among those of its agent, which
    offers one of a name, ever. fan_out: most readers that read from the owner, and from each reader,
    at a time. chunk_bytes: a reader passes on each chunk as soon as it has it. patience: seconds; a
    reader of which the owner hears nothing for so long loses its place, and a parent that does not
    answer for so long is left by its children.

    Closed at the end of its `with` block.
    """

    def __init__(
        self,
        agent: _slime.PeerAgent,
        parts: Mapping[str, Any],
        *,
        name: str = "weights",
        fan_out: int = 2,
        chunk_bytes: int = 4 << 20,
        patience: float = 3.0,
    ) -> None:
        super().__init__(agent, list(parts.items()), name, fan_out, chunk_bytes, patience)

    @contextmanager
    def update(self) -> Iterator[None]:
        """Inside the block the memory may change; at its end it is offered as the next version. If the
        block raises, nothing is offered until the next update. Readers that have not all bytes of the
        version before end with Aborted, new ones wait."""
        self.begin_update()
        yield
        self.publish()

    def info(self) -> BroadcastInfo:
        return BroadcastInfo(*self._info())

    def __enter__(self) -> Broadcast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Replica(_slime.KvReplica):
    """A reader's side of a broadcast: memory that gets a copy of the owner's, from the owner or from
    another reader, and from which other readers read in turn. Thread: any.

    parts: writable memory by name, with the owner's names and sizes, in the owner's order. name: of
    the broadcast. An agent has one replica of a name, ever.

    Closed at the end of its `with` block.
    """

    def __init__(self, agent: _slime.PeerAgent, parts: Mapping[str, Any], *, name: str = "weights") -> None:
        super().__init__(agent, list(parts.items()), name)
        self._agent = agent

    def fetch(self, owner: _slime.Peer, timeout: Optional[float] = None) -> None:
        """Copies the newest version that `owner` offers, and waits.

        timeout: seconds; None: 30 s. Returns only if all bytes of that version are here; until then the
        contents of the memory are undefined. While it runs, and after it has succeeded, other readers
        read from this memory, so it must not change: see retire(). A parent that dies or freezes is
        left for another one. One fetch at a time.

        Raises InvalidArgument if names or sizes differ; Aborted if the owner has a new version, or took
        the place of this reader back after a long silence; Unavailable if the owner is dead;
        DeadlineExceeded if it is frozen; NotFound without such a broadcast.
        """
        self.start_fetch(owner, timeout).wait()

    def start_fetch(self, owner: _slime.Peer, timeout: Optional[float] = None) -> Move:
        """Like fetch(), but does not wait: errors come from the Move."""
        return Move(self._fetch(self, self._agent, owner, timeout))

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shard(NamedTuple):
    """A part of a tensor: memory, an array or tensor, has the indices from `first` on of dimension
    `dim`, and all of the others. shape: of the whole tensor."""

    name: str
    memory: Any
    shape: Sequence[int]
    dim: int = 0
    first: int = 0

    @classmethod
    def of_rank(cls, name: str, memory: Any, rank: int, degree: int, dim: int = 0) -> Shard:
        """Returns the shard of `rank` of `degree` equal ones."""
        shape = list(memory.shape)
        first = rank * shape[dim]
        shape[dim] *= degree
        return cls(name, memory, shape, dim, first)


class Shards(_slime.KvShards):
    """The shards of this process, which peers collect with a Gather. The memory must not change while
    they read. name: of the shards among those of the agent, which offers them once, ever. Thread: any.

    Closed at the end of its `with` block.
    """

    def __init__(self, agent: _slime.PeerAgent, shards: Sequence[Shard], *, name: str = "shards") -> None:
        super().__init__(agent, [_described(each) for each in shards], name)

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Gather(_slime.KvGather):
    """Collects the shards of several owners into whole tensors. Thread: any.

    tensors: writable arrays or CPU tensors by name. Asks all owners for their shards, and checks
    names, shapes and sizes. timeout: seconds, of that; None: 30 s. Belongs to one connection with each
    owner: once one has ended, reads raise Unavailable, and another Gather is needed.

    Raises InvalidArgument if the shards do not fit the tensors, leave a gap or overlap; NotFound if an
    owner has no such shards; Unavailable; DeadlineExceeded.

    Closed at the end of its `with` block.
    """

    def __init__(
        self,
        agent: _slime.PeerAgent,
        owners: Sequence[_slime.Peer],
        tensors: Mapping[str, Any],
        *,
        name: str = "shards",
        timeout: Optional[float] = None,
    ) -> None:
        described = [
            (each, memory, list(memory.shape), _item_bytes(memory)) for each, memory in tensors.items()
        ]
        super().__init__(agent, list(owners), described, name, timeout)
        self._agent = agent

    def read(self, timeout: Optional[float] = None) -> None:
        """Reads all shards, and waits. timeout: seconds; None: 30 s. Returns only if all bytes have
        arrived. Raises Unavailable if an owner is dead; DeadlineExceeded if one is frozen."""
        self.start_read(timeout).wait()

    def start_read(self, timeout: Optional[float] = None) -> Move:
        """Like read(), but does not wait: errors come from the Move."""
        return Move(self._read(self, self._agent, timeout))

    def __enter__(self) -> Gather:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _item_bytes(memory: Any) -> int:
    size = getattr(memory, "itemsize", None)
    return int(memory.element_size() if size is None else size)


def _described(shard: Shard) -> Tuple[str, Any, List[int], int, int, int, int]:
    shape, here = list(shard.shape), list(shard.memory.shape)
    if not 0 <= shard.dim < len(shape) or here[: shard.dim] + here[shard.dim + 1 :] != (
        shape[: shard.dim] + shape[shard.dim + 1 :]
    ):
        raise InvalidArgument(
            f"{shard.name}: memory of shape {here} is no shard along dimension {shard.dim} of a tensor of shape {shape}"
        )
    return (
        shard.name,
        shard.memory,
        shape,
        _item_bytes(shard.memory),
        shard.dim,
        shard.first,
        here[shard.dim],
    )
