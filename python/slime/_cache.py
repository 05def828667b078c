"""CacheClient: named objects in a slime-cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

from slime import _memory, _slime
from slime._errors import Error, InvalidArgument, NotFound, from_status

Key = Union[str, bytes]


def _place(data: Any) -> Any:
    """Returns the memory of `data`: its region, offset and length if `data` lies in a region, so
    that no copy is needed; otherwise `data` itself."""
    if isinstance(data, _slime.MemoryRegion):
        return data, 0, data.length_bytes
    if getattr(data, "base", None) is not None:
        try:
            return _memory.locate(data)
        except InvalidArgument:
            # `data` is not in a region, or is an array that is not contiguous, which the call
            # refuses later
            pass
    return data


class CacheClient(_slime.CacheClient):
    """A client of one cache. Any thread.

    An object is a byte string under a namespace and a key (str or bytes). Any contiguous host
    memory can be the source of put() and the destination of get(): bytes, bytearray, NumPy arrays,
    MemoryRegions. Arrays from `agent.empty()` and regions are read and written in place; other
    memory is copied.

    server: the cache's name or "host:port". timeout: seconds, for each step of a call.

    A call that moves data raises KeyboardInterrupt only after its memory is no longer in use.
    """

    def __init__(self, agent: _slime.PeerAgent, server: str = "cache:0", *, timeout: Optional[float] = None) -> None:
        super().__init__(agent, server, timeout)
        self._agent = agent

    def put(
        self, namespace: str, key: Key, data: Any, *, ttl: Optional[float] = None, replace: bool = False
    ) -> None:
        """Stores an object for `ttl` seconds, or until the cache evicts it. Raises AlreadyExists if
        the object exists and `replace` is false."""
        (outcome,) = self._put_places(namespace, [key], [_place(data)], ttl, replace)
        if outcome is not None:
            raise from_status(*outcome)

    def put_many(
        self,
        namespace: str,
        items: Union[Mapping[Key, Any], Iterable[tuple[Key, Any]]],
        *,
        ttl: Optional[float] = None,
        replace: bool = False,
    ) -> list[Optional[Error]]:
        """Stores many objects with few operations. Returns a list with one item per object, in
        order: None, or the Error that put() would have raised."""
        pairs = list(items.items() if isinstance(items, Mapping) else items)
        outcomes = self._put_places(
            namespace, [key for key, _ in pairs], [_place(data) for _, data in pairs], ttl, replace
        )
        return [None if outcome is None else from_status(*outcome) for outcome in outcomes]

    def get(self, namespace: str, key: Key, out: Any = None) -> Union[bytes, int]:
        """Returns the object's bytes. With `out`, writes the bytes to that memory and returns their
        number. Raises NotFound if there is no such object."""
        if out is None:
            (outcome,) = self._get_bytes(namespace, [key])
        else:
            (outcome,) = self._get_places(namespace, [key], [_place(out)])
        if isinstance(outcome, tuple):
            raise from_status(*outcome)
        return outcome

    def put_async(
        self, namespace: str, key: Key, data: Any, *, ttl: Optional[float] = None, replace: bool = False
    ) -> _slime.Future[None]:
        """Like put(), but returns a future. The memory of `data` must not change until the future
        is done. cancel() and a cancelled task do not end the call. Asynchronous calls of a client
        run one after the other. The future keeps the client alive."""
        return self._put_async(self._agent, namespace, key, _place(data), ttl, replace)

    def get_async(self, namespace: str, key: Key, out: Any = None) -> _slime.Future[Any]:
        """Like get(), but returns a future. The memory of `out` is in use until the future is done:
        cancel() and a cancelled task do not end the call. The future keeps the client alive."""
        if out is None:
            return self._get_async(self._agent, namespace, key)
        return self._get_into_async(self._agent, namespace, key, _place(out))

    def get_many(
        self, namespace: str, keys: Iterable[Key], out: Optional[Iterable[Any]] = None
    ) -> list[Union[bytes, int, None]]:
        """Gets many objects with few operations. Returns for each, in order, the result of get(),
        or None if the object is missing. Raises errors other than NotFound."""
        keys = list(keys)
        if out is None:
            outcomes = self._get_bytes(namespace, keys)
        else:
            outcomes = self._get_places(namespace, keys, [_place(target) for target in out])
        return [_or_none(outcome) for outcome in outcomes]

    def remove_many(self, namespace: str, keys: Iterable[Key]) -> list[Optional[Error]]:
        """Removes many objects. Returns a list with one item per object, in order: None, or the
        Error that remove() would have raised."""
        outcomes = self._remove_many(namespace, list(keys))
        return [None if outcome is None else from_status(*outcome) for outcome in outcomes]

    def stats(self) -> dict:
        """Returns the statistics of the cache: objects, bytes, hits, misses, evicted, leases, slabs by
        size, ..."""
        return json.loads(self._stats_json())


def _or_none(outcome: Any) -> Any:
    if not isinstance(outcome, tuple):
        return outcome
    error = from_status(*outcome)
    if isinstance(error, NotFound):
        return None
    raise error
