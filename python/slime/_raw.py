"""Calls with encoded bytes."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from slime import _interceptors, _slime

Entries = Optional[_interceptors.Entries]
Decode = Optional[Callable[[Any], Any]]


class RawPeer:
    """Calls of a Peer with bodies that are encoded already: `peer.raw()`. Any thread.

    `arguments`: a msgpack array, as bytes or any object with the buffer protocol. The result of a
    call is decode(payload), computed on the thread that takes the result. Without `decode` the
    result is the payload: bytes(payload) is msgpack. `attached`: the attachments that extension
    values in `arguments` refer to. Timeouts are in seconds; None is the peer's default. The
    metadata, timing and interceptors of the Peer apply."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer

    def call(
        self, service: str, method: str, arguments: Any, timeout: Optional[float] = None, decode: Decode = None
    ) -> _slime.Future:
        """Calls a method."""

        def start(entries: Entries, timed: bool) -> _slime.Future:
            return self._peer._call_raw(service, method, arguments, timeout, decode, entries, timed)

        return _interceptors.begin_call(self._peer, "call", (service, method), start)

    def call_attached(
        self,
        service: str,
        method: str,
        arguments: Any,
        attached: Any,
        timeout: Optional[float] = None,
        decode: Decode = None,
    ) -> _slime.Future:
        """Like call(), with attachments."""

        def start(entries: Entries, timed: bool) -> _slime.Future:
            return self._peer._call_attached(service, method, arguments, attached, timeout, decode, entries, timed)

        return _interceptors.begin_call(self._peer, "call", (service, method), start)

    def one_way(self, service: str, method: str, arguments: Any, timeout: Optional[float] = None) -> _slime.Future:
        """Calls without an answer; see Peer.one_way()."""
        return self.one_way_attached(service, method, arguments, None, timeout)

    def one_way_attached(
        self, service: str, method: str, arguments: Any, attached: Any, timeout: Optional[float] = None
    ) -> _slime.Future:
        """Like one_way(), with attachments."""

        def start(entries: Entries, timed: bool) -> _slime.Future:
            return self._peer._one_way_raw(service, method, arguments, timeout, entries, timed, attached)

        return _interceptors.begin_call(self._peer, "one-way", (service, method), start)

    def stream(
        self,
        service: str,
        method: str,
        arguments: Any,
        timeout: Optional[float] = None,
        decode: Decode = None,
        idle_timeout: Optional[float] = None,
    ) -> Tuple[_slime.StreamEnd, _slime.Future]:
        """Calls a streaming method. Returns this side of the stream, and the future of the
        result."""
        ends = []

        def start(entries: Entries, timed: bool) -> _slime.Future:
            end, result = self._peer._stream_raw(
                service, method, arguments, timeout, decode, entries, timed, idle_timeout
            )
            ends.append(end)
            return result

        result = _interceptors.begin_call(self._peer, "stream", (service, method), start)
        return ends[0], result

    def __repr__(self) -> str:
        return f"<slime.RawPeer {self._peer.name!r}>"
