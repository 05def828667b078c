"""The memory of a cache, as its clients see it: offsets, each a version and a place in its bytes."""

from __future__ import annotations

import ctypes
import json
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from slime._agent import PeerAgent
from slime._cache import CacheClient
from slime._errors import InvalidArgument
from slime.compat import _common

_SPACE = "dlslime"
_PLACE_BITS = 32  # as cache/http_directory.cc has it


class Block(NamedTuple):
    """A block of a transfer: the own address, and an offset of the cache."""

    address: int
    offset: int
    length: int


class _Planned:
    """A version of which not all bytes are written yet."""

    def __init__(self, manifest: Dict[str, Any]) -> None:
        self.manifest = manifest
        self.total = int(manifest["total_bytes"])
        self.bytes = bytearray(self.total)
        self._written: List[Tuple[int, int]] = []  # ranges, in order, not adjacent

    def write(self, address: int, place: int, length: int) -> None:
        view = (ctypes.c_char * length).from_buffer(self.bytes, place)
        ctypes.memmove(view, address, length)
        merged: List[Tuple[int, int]] = []
        for begin, end in sorted([*self._written, (place, place + length)]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._written = merged

    def whole(self) -> bool:
        return self._written == [(0, self.total)]


class All:
    """A future of several. Its value: their values."""

    def __init__(self, futures: Sequence[Any]) -> None:
        self._futures = futures

    def done(self) -> bool:
        return all(each.done() for each in self._futures)

    def result(self, timeout: Optional[float] = None) -> List[Any]:
        return [each.result(timeout) for each in self._futures]

    def __await__(self) -> Any:
        values = []
        for each in self._futures:
            values.append((yield from each.__await__()))
        return values


class CacheMemory:
    """The memory of one cache. Thread: any.

    A version's bytes are kept here until all are written. The write that completes them puts them into
    the cache, and then the manifest; its future ends when both are there."""

    def __init__(self, agent: PeerAgent, server: str, name: str) -> None:
        self.name = name
        self._client = CacheClient(agent, server, timeout=_common.timeout())
        self._lock = threading.Lock()
        self._planned: Dict[int, _Planned] = {}

    def plan(self, manifest: Dict[str, Any]) -> None:
        """Expects the bytes of a version that /store has planned."""
        with self._lock:
            self._planned[int(manifest["version"])] = _Planned(manifest)

    def forget(self, version: int) -> None:
        with self._lock:
            self._planned.pop(version, None)

    def write(self, blocks: Sequence[Block]) -> Any:
        """Writes blocks. Returns a future. Raises InvalidArgument, and writes nothing, if a block is not
        inside a version that is planned here."""
        ended: List[Any] = [_common.Ended(None)]
        with self._lock:
            for block in blocks:
                self._version_of(block)
            for block in blocks:
                version, place = divmod(block.offset, 1 << _PLACE_BITS)
                self._planned[version].write(block.address, place, block.length)
            for version in dict.fromkeys(block.offset >> _PLACE_BITS for block in blocks):
                planned = self._planned[version]
                if planned.whole():
                    del self._planned[version]
                    ended += self._seal(version, planned)
        return All(ended)

    def _version_of(self, block: Block) -> None:
        version, place = divmod(block.offset, 1 << _PLACE_BITS)
        planned = self._planned.get(version)
        if planned is None:
            raise InvalidArgument(
                f"offset {block.offset} of {self.name!r} is not of a manifest that this agent has stored and not yet "
                "written: CacheClient.store() comes first"
            )
        if block.length < 0 or place + block.length > planned.total:
            raise InvalidArgument(f"version {version} has {planned.total} bytes, not {block.length} at {place}")

    def _seal(self, version: int, planned: _Planned) -> List[Any]:
        # One after the other; a manifest without its bytes is not there.
        text = json.dumps(planned.manifest).encode()
        return [
            self._client.put_async(_SPACE, str(version), planned.bytes),
            self._client.put_async(_SPACE, f"{version}.manifest", text),
        ]

    def read(self, blocks: Sequence[Block]) -> Tuple[Any, Any]:
        """Returns a future, and what to do with its value: it writes the blocks."""
        versions = list(dict.fromkeys(block.offset >> _PLACE_BITS for block in blocks))
        future = All([self._client.get_async(_SPACE, str(version)) for version in versions])

        def finish(objects: List[bytes]) -> int:
            found = dict(zip(versions, objects))
            for block in blocks:
                version, place = divmod(block.offset, 1 << _PLACE_BITS)
                if block.length < 0 or place + block.length > len(found[version]):
                    raise InvalidArgument(
                        f"version {version} has {len(found[version])} bytes, not {block.length} at {place}"
                    )
            for block in blocks:
                version, place = divmod(block.offset, 1 << _PLACE_BITS)
                piece = bytes(memoryview(found[version])[place : place + block.length])
                ctypes.memmove(block.address, piece, block.length)
            return 0

        return future, finish
