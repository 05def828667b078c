"""Peers, and proxies of their services."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple, Union

from slime import _attachments, _interceptors, _known_methods, _slime, _streams
from slime._async_call import AsyncCall, AsyncOneWay
from slime._completion import Receive
from slime._info import PeerInfo
from slime._proxy import AnyServer
from slime._raw import RawPeer
from slime._streams import AsyncStream, Stream


class Peer(_slime.Peer):
    """A peer by name or address: `agent.peer("worker:0")`. Connects on first use, and again after
    the connection was lost.

    Cheap to make and copy; any thread. Timeouts are in seconds; None is the agent's default.
    """

    _metadata: Dict[str, str] = {}
    _optional: FrozenSet[str] = frozenset()
    _timing = False

    def of_connection(self, timeout: Optional[float] = None) -> Peer:
        """Connects if there is no connection, and returns the peer of that one connection: its
        operations use no other. Once the connection has ended they raise Unavailable, whether or not
        this agent has connected to the peer again."""
        return Peer(self._of_connection(timeout))

    def sendv(self, tag: int, ranges: Iterable[Any], timeout: Optional[float] = None) -> _slime.Future[None]:
        """Sends a message that is the bytes of all `ranges` in order, without a copy.

        ranges: arrays, tensors, memory regions, parts of them (memoryview) or bytes, each contiguous.
        Memory of a region with Rights.REMOTE_READ is sent as it is, other memory is registered for
        this message. The future is done once a receive at the peer has the bytes, which must not
        change until then; if the send fails, until its connection ends or the region is closed.
        Raises InvalidArgument if that receive has no room for the bytes."""
        return self._sendv(tag, _attachments.ranges_of(ranges), timeout)

    def recvv(self, tag: int, ranges: Iterable[Any], timeout: Optional[float] = None) -> _slime.Future[int]:
        """Receives the next message with this tag into `ranges`, in order.

        ranges: writable arrays, tensors, regions or parts of them (memoryview), each contiguous. The
        future's value is the message's length in bytes. A message that is longer than the ranges
        raises InvalidArgument, with both lengths, and nothing is written: a message of send() stays,
        for the next receive; the sender of one of sendv() gets the error, too. If the receive ends
        early, the message is the next receive's, and a part of it may have been written."""
        return self._recvv(tag, _attachments.into_of(list(ranges), None), timeout)

    def recv_into(self, tag: int, into: Any, timeout: Optional[float] = None) -> _slime.Future[int]:
        """Receives the next message with this tag into one range: see recvv()."""
        return self.recvv(tag, [into], timeout)

    def recv(self, tag: int, timeout: Optional[float] = None) -> Receive:
        """Receives the next message with this tag, as bytes. If the receive is dropped, cancelled,
        or ended by asyncio.wait_for, its message returns to the front of the messages with this
        tag."""
        return Receive(self._recv_future(tag, timeout))

    def call(
        self,
        service: str,
        method: str,
        *arguments: Any,
        timeout: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        timing: bool = False,
        into: Any = None,
    ) -> _slime.Future[Any]:
        """Calls `service`.`method`; the future's value is the result.

        Arrays, tensors, regions and long bytes in `arguments` are sent from their memory without a
        copy, and must not change until the call has succeeded. `into` (an array, tensor or region,
        or a list of them) is memory that the arrays, tensors, regions and long bytes of the result
        are written to, in order. `metadata` is sent in addition to the entries of with_metadata().
        With `timing`, slime.timing_of(future) returns the parts of the call's time."""
        if into is None and not metadata and not (timing or self._timing or self._metadata):
            # Fast path for a call without metadata, timing, `into` and interceptors: C++ sends it
            # directly.
            if not self.agent._client_interceptors:
                future = _slime.call_value(self, service, method, arguments, timeout)
                if future is not None:
                    return future
        begin = _attachments.starter(self._call_raw, self._call_attached, (service, method), arguments, timeout, into)
        return _interceptors.begin_call(self, "call", (service, method), begin, metadata, timing)

    def _call_now(self, service: str, method: str, arguments: tuple, timeout: Optional[float]) -> Any:
        """Calls a method and waits for its result. Returns NotImplemented, and sends nothing, for a
        call that call() does not send directly."""
        if self._timing or self._metadata or self.agent._client_interceptors:
            return NotImplemented
        return _slime.call_now(self, service, method, arguments, timeout)

    def call_bytes(
        self,
        service: str,
        method: str,
        body: Any,
        timeout: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        timing: bool = False,
    ) -> _slime.Future[memoryview]:
        """Calls a raw method. `body`, bytes or any object with the buffer protocol, is copied. The
        future's value is a memoryview of the answer."""

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return self._call_raw(service, method, body, timeout, memoryview, entries, timed, as_bytes=True)

        return _interceptors.begin_call(self, "call", (service, method), start, metadata, timing)

    def one_way(
        self,
        service: str,
        method: str,
        *arguments: Any,
        timeout: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> _slime.Future[None]:
        """Calls a method without waiting for an answer. The future is done once the request has
        left and the peer has read the attachments; with_timing() measures that time. If the peer
        refuses the call or its handler fails, this process counts it (`one_way_failed` in info())
        and logs it."""
        body, beside = _attachments.pack(arguments)

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return self._one_way_raw(service, method, body, timeout, entries, timed, beside)

        return _interceptors.begin_call(self, "one-way", (service, method), start, metadata)

    def one_way_bytes(
        self,
        service: str,
        method: str,
        body: Any,
        timeout: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> _slime.Future[None]:
        """Like one_way(), for a raw method: see call_bytes()."""

        def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
            return self._one_way_raw(service, method, body, timeout, entries, timed, as_bytes=True)

        return _interceptors.begin_call(self, "one-way", (service, method), start, metadata)

    def stream(
        self,
        service: str,
        method: str,
        *arguments: Any,
        timeout: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        timing: bool = False,
    ) -> Stream:
        """Calls a streaming method. Returns the stream: iterate over it to read messages, write
        with stream.write(x), get the result with stream.finish().

        idle_timeout: seconds without a message after which the stream ends; None: the agent's
            stream_idle_timeout; float("inf"): never.
        timeout: seconds for the whole stream; None: the timeout of with_timeout(), or no limit
            without with_timeout().
        timing: slime.timing_of(stream) measures the whole stream."""
        bounds = (timeout, idle_timeout)
        return _streams.open_stream(Stream, self, (service, method), arguments, bounds, metadata, timing)

    def async_stream(self, service: str, method: str, *arguments: Any, **options: Any) -> AsyncStream:
        """Like stream(), with the same options, but for asyncio: `async for message in stream`,
        `await stream.write(x)`, `await stream.finish()`."""
        stream = self.stream(service, method, *arguments, **options)
        return AsyncStream(stream._end, stream._result)

    def raw(self) -> RawPeer:
        """Returns the calls with encoded bytes."""
        return RawPeer(self)

    def proxy(self, service: str, timeout: Optional[float] = None) -> Proxy:
        """Returns a proxy: `peer.proxy("Calc").add(1, 2)` calls the method and waits for its
        result. `timeout`: seconds for each call; None: the peer's default."""
        return Proxy(self, service, timeout)

    def async_proxy(self, service: str, timeout: Optional[float] = None) -> AsyncProxy:
        """`await peer.async_proxy("Calc").add(1, 2)`."""
        return AsyncProxy(self, service, timeout)

    def services(self, timeout: Optional[float] = None) -> list:
        """Asks the peer for its services, and waits for the answer. Returns a list of {"name",
        "methods": [{"name", "parameters": [{"name", "type", "optional", "rest"}], "result", "doc",
        "reads", "writes"}]}."""
        found = self.with_signature("").call("slime.Reflection", "services", timeout=timeout).result()
        _known_methods.remember(self.agent, found)
        return found

    def with_timeout(self, timeout: float) -> Peer:
        """Returns a Peer with another default timeout, in seconds."""
        return self._like(super().with_timeout(timeout))

    def wait_for_ready(self) -> Peer:
        """Returns a Peer whose operations wait until an unreachable peer can be reached, up to
        their timeout, instead of failing at once."""
        return self._like(super().wait_for_ready())

    def with_signature(self, signature: str) -> Peer:
        """Returns a Peer whose calls require the server's method to have the signature `signature`,
        such as "(int, str?) -> bool". If the method has another signature, calls raise
        Unimplemented, and nothing is executed."""
        return self._like(super().with_signature(signature))

    def with_metadata(self, key: str, value: str, optional: bool = False) -> Peer:
        """Returns a Peer whose calls also carry this metadata entry. If the version of the peer has
        no metadata, calls raise Unimplemented, unless the entry is `optional`."""
        out = self._like(self)
        out._metadata = {**self._metadata, key: value}
        out._optional = self._optional | {key} if optional else self._optional - {key}
        return out

    def with_timing(self) -> Peer:
        """Returns a Peer that times its calls: slime.timing_of(future) returns a call's Timing."""
        out = self._like(self)
        out._timing = True
        return out

    def health(self, service: str = "", timeout: Optional[float] = None) -> str:
        """Asks the peer for the state of `service`, or of the whole peer if empty, and waits for
        the answer. Returns "serving", "draining" or "unknown"."""
        return self.with_signature("").call("slime.Health", "check", service, timeout=timeout).result()

    def _like(self, peer: _slime.Peer) -> Peer:
        out = Peer(peer)
        out._metadata = self._metadata
        out._optional = self._optional
        out._timing = self._timing
        return out

    def info(self) -> PeerInfo:
        """Returns the state of the connection, the provider and why it was chosen, the last error,
        and counters."""
        return json.loads(self._info_json())

    def __repr__(self) -> str:
        return f"<slime.Peer {self.name!r}>"


class Proxy:
    """A service of a peer, or of any live server; its methods are attributes.

    Methods whose names are not identifiers are items: `proxy["other.name"](1)`. An item may have a
    signature: `proxy["add", "(int, int) -> int"](1, 2)` raises Unimplemented if the server's method
    has another signature.

    dir(proxy) lists the methods that this agent knows of services with this name: the methods that
    peer.services() has returned, and the methods that a proxy has called with success. dir() itself
    asks no peer."""

    def __init__(self, peer: Union[Peer, AnyServer], service: str, timeout: Optional[float]) -> None:
        self._peer = peer
        self._service = service
        self._timeout = timeout
        self._by_signature: Dict[str, Proxy] = {}
        self._known = _known_methods.methods_of(peer.agent, service)

    def __getattr__(self, method: str) -> _Method:
        if method.startswith("__"):
            raise AttributeError(method)
        # Python calls __getattr__() only for attributes that do not exist: the next access finds
        # the method without this function.
        made = self.__dict__[method] = self._method(method)
        return made

    def __getitem__(self, method: Union[str, Tuple[str, str]]) -> _Method:
        if isinstance(method, str):
            return self._method(method)
        name, signature = method
        proxy = self._by_signature.get(signature)
        if proxy is None:
            proxy = type(self)(self._peer.with_signature(signature), self._service, self._timeout)
            self._by_signature[signature] = proxy
        return proxy._method(name)

    def __dir__(self) -> List[str]:
        used = {name for name, value in self.__dict__.items() if isinstance(value, _Method)}
        return sorted({*super().__dir__()} - used | {*self._known.attributes()})

    def __repr__(self) -> str:
        return f"<slime.{type(self).__name__} {self._service} of {self._peer.name!r}>"

    def _method(self, name: str) -> _Method:
        return _Method(self, name)


class AsyncProxy(Proxy):
    """Like Proxy, but a call returns an AsyncCall: an awaitable whose call has already begun."""

    def _method(self, name: str) -> _Method:
        return _AsyncMethod(self, name)


class _Method:
    """A method of a Proxy. Has no reference to the proxy, which keeps it."""

    __slots__ = ("_peer", "_service", "_name", "_timeout", "_known")

    _stream: type = Stream

    def __init__(self, proxy: Proxy, name: str) -> None:
        self._peer = proxy._peer
        self._service = proxy._service
        self._name = name
        self._timeout = proxy._timeout
        self._known = proxy._known

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if keywords:
            self._refuse(keywords)
        value = self._peer._call_now(self._service, self._name, arguments, self._timeout)
        if value is NotImplemented:
            value = self._called(arguments)
        if self._name not in self._known:
            self._known.add(self._name)
        return value

    def _called(self, arguments: tuple) -> Any:
        future = self._begin(arguments)
        try:
            return future.result()
        except KeyboardInterrupt:
            # needed if Ctrl-C comes before result() begins; within result(), Ctrl-C cancels already
            future.cancel()
            raise

    def _begin(self, arguments: tuple) -> _slime.Future:
        return self._peer.call(self._service, self._name, *arguments, timeout=self._timeout)

    def one_way(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the method without waiting for an answer. Returns once the request has left; on an
        AsyncProxy, returns an awaitable instead."""
        if keywords:
            self._refuse(keywords)
        return self._told(self._peer.one_way(self._service, self._name, *arguments, timeout=self._timeout))

    def _told(self, future: _slime.Future) -> Any:
        return future.result()

    def call_bytes(self, body: Any) -> Any:
        """Calls a raw method: see Peer.call_bytes()."""
        return self._given(self._peer.call_bytes(self._service, self._name, body, timeout=self._timeout))

    def _given(self, future: _slime.Future) -> Any:
        return future.result()

    def stream(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls a streaming method. Returns a Stream; an AsyncProxy returns an AsyncStream."""
        if keywords:
            self._refuse(keywords)
        bounds = (self._timeout, None)
        return _streams.open_stream(self._stream, self._peer, (self._service, self._name), arguments, bounds)

    def _refuse(self, keywords: dict) -> None:
        given = ", ".join(keywords)
        raise TypeError(
            f"{self._service}.{self._name}() takes no keyword arguments ({given}): arguments travel by position"
        )


class _AsyncMethod(_Method):
    __slots__ = ()

    _stream = AsyncStream

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if keywords:
            self._refuse(keywords)
        known = self._name in self._known
        return AsyncCall(self._begin(arguments), None if known else partial(self._known.add, self._name))

    def _told(self, future: _slime.Future) -> Any:
        return AsyncOneWay(future)

    def _given(self, future: _slime.Future) -> Any:
        return AsyncCall(future)
