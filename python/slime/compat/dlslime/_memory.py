"""The memory of an endpoint or an agent of DLSlime: by names, and by the numbers that stand for them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Union

from slime import _slime
from slime._agent import PeerAgent
from slime._errors import Error, InvalidArgument, NotFound
from slime._peer import Peer

# Numbers of memory begin here: names may be numbers, too, and mean another thing.
FIRST_NUMBER = 1 << 40

Key = Union[str, int]  # a name, or the number that stands for it


class Region(NamedTuple):
    memory: _slime.MemoryRegion
    address: int
    size: int


class Names:
    """Names, each with a number. Numbers are not used again. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: List[str] = []
        self._numbers: Dict[str, int] = {}

    def number(self, name: str) -> int:
        """Returns the name's number, a new one for a new name."""
        with self._lock:
            if name not in self._numbers:
                self._numbers[name] = FIRST_NUMBER + len(self._names)
                self._names.append(name)
            return self._numbers[name]

    def name(self, key: Key) -> str:
        """Returns the name that a name or a number means."""
        at = key - FIRST_NUMBER if isinstance(key, int) else -1
        with self._lock:
            return self._names[at] if 0 <= at < len(self._names) else str(key)


class Memory:
    """The own memory, published under its names. Thread: any."""

    def __init__(self, agent: PeerAgent) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._names = Names()
        self._regions: Dict[str, Region] = {}

    def register(self, key: Key, address: int, size: int) -> int:
        """Registers memory, and returns its number. Raises AlreadyExists for the same name and other
        memory."""
        name = str(key)
        with self._lock:
            known = self._regions.get(name)
            if known is None or (known.address, known.size) != (address, size):
                memory = self._agent.register_address(address, size, _slime.Rights.READ_WRITE)
                try:
                    self._agent.publish(published(name), memory)
                except Error:
                    memory.close()
                    raise
                self._regions[name] = Region(memory, address, size)
            return self._names.number(name)

    def unregister(self, key: Key) -> None:
        """Takes memory back: peers reach it no longer. Raises NotFound."""
        name = self._names.name(key)
        with self._lock:
            region = self._regions.pop(name, None)
            if region is None:
                raise NotFound(f"no memory was registered as {key!r}")
            self._agent.unpublish(published(name))
            region.memory.close()

    def number(self, key: Key) -> int:
        self.find(key)
        return self._names.number(self._names.name(key))

    def find(self, key: Key) -> Region:
        with self._lock:
            found = self._regions.get(self._names.name(key))
        if found is None:
            raise NotFound(f"no memory was registered as {key!r}")
        return found

    def address(self, key: Key, offset: int, length: int) -> int:
        """Returns the address of a range. Raises InvalidArgument if it is not inside."""
        region = self.find(key)
        if offset < 0 or length < 0 or offset + length > region.size:
            raise InvalidArgument(f"{length} bytes at offset {offset} are not inside of {key!r}: {region.size} bytes")
        return region.address + offset

    def view(self, address: int, length: int) -> Any:
        """Returns the bytes at an address, with the buffer protocol: of registered memory if they are
        inside of it, since a message of other memory registers it."""
        if length < 0:
            raise InvalidArgument(f"a message of {length} bytes")
        with self._lock:
            for region in self._regions.values():
                at = address - region.address
                if 0 <= at and at + length <= region.size:
                    return memoryview(region.memory)[at : at + length]
        return (ctypes.c_char * length).from_address(address)

    def info(self) -> Dict[str, Dict[str, int]]:
        """Returns the memory by name. Has no keys."""
        with self._lock:
            return {
                name: {"handle": self._names.number(name), "addr": region.address, "length": region.size}
                for name, region in self._regions.items()
            }


def remote(peer: Peer, name: str) -> _slime.RemoteRegion:
    """Returns a peer's memory with this name. Raises NotFound."""
    # The agent remembers it as long as the connection lasts.
    return peer.region(published(name))


def published(name: str) -> str:
    """Returns the name of the region that memory with this name is published as."""
    return f"mr-{name.encode().hex()}"


def name_of(region: str) -> Optional[str]:
    """Returns the name of the memory that a region is; None: it is another region."""
    if not region.startswith("mr-"):
        return None
    try:
        return bytes.fromhex(region[3:]).decode()
    except ValueError:
        return None


def range_of(ptr: int, range_: tuple) -> tuple:
    """Returns (address, size) of (ptr, length) or (ptr, offset, length)."""
    if len(range_) not in (1, 2):
        raise TypeError("register_memory_region(name, ptr[, offset], length)")
    return ptr + (range_[0] if len(range_) == 2 else 0), range_[-1]
