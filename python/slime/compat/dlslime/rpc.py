"""SlimeRPC of DLSlime on Slime's calls.

Arguments and results travel as msgpack, not as pickles: None, bool, int, float, str, bytes, lists,
dicts, NumPy arrays and CPU tensors. A tuple arrives as a list. Other values are an RpcError, at the
caller before anything is sent. Methods are found by their names.

Each serve() has workers of its own (max_workers, else SLIME_RPC_SERVER_WORKERS, else 1), and runs one
call of its object at a time, except of methods with parallel=True. A call ends after
SLIME_COMPAT_TIMEOUT seconds (30), whatever wait() is given.
"""

from __future__ import annotations

import ctypes
import glob
import os
import threading
import time
import traceback
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from slime import _slime
from slime._errors import DeadlineExceeded, Error, InvalidArgument, PermissionDenied, WaitTimeout
from slime._peer import Peer
from slime._service import current_call
from slime._service import method as _slime_method
from slime.compat import _common
from slime.compat.dlslime.peer_agent import PeerAgent

__all__ = [
    "RemoteRpcError",
    "RpcError",
    "RpcFuture",
    "RpcTimeoutError",
    "SoftRnrMonitor",
    "method",
    "proxy",
    "serve",
    "serve_once",
    "wait_all",
]

_TEXT_MOST = 8192  # characters of a traceback that is sent
_LOOK_EVERY = 0.02
_ROOM = 32_000_000  # bytes of a request or an answer that is written in place


class RpcError(RuntimeError):
    """A call failed."""


class RpcTimeoutError(RpcError, TimeoutError):
    """A call did not end in time."""


class RemoteRpcError(RpcError):
    """The method raised. type_name: the exception's class. traceback: where, as text."""

    def __init__(self, message: str, type_name: str = "", traceback: str = "") -> None:
        super().__init__(f"{type_name}: {message}" if type_name else message)
        self.message = message
        self.type_name = type_name
        self.traceback = traceback


def method(
    function: Optional[Callable] = None,
    *,
    streaming: bool = False,
    raw: bool = False,
    parallel: bool = False,
    inplace: bool = False,
) -> Any:
    """Marks a method that peers may call.

    raw: the method takes (channel, address, size) of the request's bytes, and returns bytes or None;
    the caller passes bytes. With inplace, too: it takes (address, size, address, room), writes its
    answer to the second address, and returns the answer's size; the caller passes bytes, or a function
    that writes them: (address, room) -> size. parallel: may run beside other calls of its object."""
    if streaming:
        raise InvalidArgument("SlimeRPC has no streams: mark a generator with slime.method")

    def mark(target: Callable) -> Callable:
        target.__dlslime_method__ = (raw, parallel, inplace)  # type: ignore[attr-defined]
        return target

    return mark if function is None else mark(function)


class RpcFuture:
    """A call under way. Thread: any."""

    def __init__(self, future: Any, raw: bool) -> None:
        self._future = future
        self._raw = raw

    def done(self) -> bool:
        """Returns whether wait() would return at once."""
        return self._future.done()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the result. Raises RemoteRpcError if the method raised, RpcTimeoutError if it did not
        end in time, RpcError if the peer did not answer otherwise. May be called again."""
        try:
            value = self._future.result(timeout)
        except Error as error:
            raise _as_rpc_error(error) from error
        if not isinstance(value, list) or len(value) < 2:
            raise RpcError(f"the peer's answer is not one of SlimeRPC: {value!r:.200}")
        ok, *rest = value
        if ok is True and self._raw and not isinstance(rest[0], (bytes, bytearray, memoryview, type(None))):
            raise RpcError(f"the peer's answer is not one of SlimeRPC: {value!r:.200}")
        if ok is not True:
            type_name, message, where = (*map(str, rest), "", "", "")[:3]
            raise RemoteRpcError(message, type_name, where)
        return bytes(rest[0]) if self._raw and rest[0] is not None else rest[0]


def wait_all(futures: Sequence[RpcFuture], timeout: Optional[float] = None) -> List[Any]:
    """Waits for all calls, `timeout` seconds in all. Returns their results in order."""
    until = None if timeout is None else time.monotonic() + timeout
    return [each.wait(None if until is None else max(0.0, until - time.monotonic())) for each in futures]


def proxy(agent: PeerAgent, peer: str, service: type, *_: Any, **__: Any) -> Any:
    """Returns a proxy: `proxy(agent, "worker:0", Calc).add(1, 2)` begins a call, and returns its future.
    Waits until the peer serves `service`, up to SLIME_COMPAT_TIMEOUT. Raises RpcTimeoutError, or
    Unavailable if the agent is not connected to the peer."""
    carrier: Peer = agent._carrier(peer).peer
    names = [_service_name(service, agent.alias), _service_name(service, None)]
    until = time.monotonic() + _common.timeout()
    while True:
        for name in names:
            try:
                if carrier.health(name) == "serving":
                    return _Proxy(carrier, name, _methods_of(service))
            except Error as error:
                raise _as_rpc_error(error) from error
        if time.monotonic() > until:
            raise RpcTimeoutError(f"{peer} does not serve {service.__name__} to {agent.alias}")
        time.sleep(_LOOK_EVERY)


class SoftRnrMonitor:
    """Counts what the adapters' receivers had no buffer for, since it was made: sysfs' `counter`.

    devices: (device, port) of each adapter; None: all that count it."""

    def __init__(self, devices: Optional[Iterable[Tuple[str, int]]] = None, counter: str = "out_of_buffer") -> None:
        pattern = f"/sys/class/infiniband/*/ports/*/hw_counters/{counter}"
        found = [(path.split("/")[4], int(path.split("/")[6])) for path in sorted(glob.glob(pattern))]
        self._counter = counter
        self._devices = found if devices is None else list(devices)
        self._before = self._now()

    def _now(self) -> Dict[str, int]:
        total: Dict[str, int] = {}
        for device, port in self._devices:
            try:
                with open(f"/sys/class/infiniband/{device}/ports/{port}/hw_counters/{self._counter}") as file:
                    total[device] = total.get(device, 0) + int(file.read())
            except (OSError, ValueError):
                continue
        return total

    def delta(self) -> Dict[str, int]:
        """Returns the counts by device."""
        return {device: count - self._before.get(device, 0) for device, count in self._now().items()}


class _Proxy:
    def __init__(self, peer: Peer, name: str, methods: Dict[str, tuple]) -> None:
        self._peer = peer
        self._name = name
        self._methods = methods

    def __getattr__(self, name: str) -> Callable[..., RpcFuture]:
        if name.startswith("__") or name not in self._methods:
            raise AttributeError(f"no method {name!r}; there are: {', '.join(sorted(self._methods))}")
        raw, _, inplace = self._methods[name]

        def call(*arguments: Any) -> RpcFuture:
            if raw or inplace:
                arguments = (_bytes_of(*arguments),)
            try:
                return RpcFuture(self._peer.call(self._name, name, *arguments), raw or inplace)
            except (InvalidArgument, TypeError) as error:
                raise RpcError(
                    f"the arguments of {name}() cannot be sent: {error}. SlimeRPC on Slime sends msgpack, not pickles"
                ) from error
            except Error as error:
                raise _as_rpc_error(error) from error

        return call


def serve(
    agent: PeerAgent, service: Any, peer: Optional[str] = None, channel: Any = None, max_workers: Optional[int] = None
) -> None:
    """Serves the marked methods of `service` to `peer`, None: to every peer, until the agent's
    shutdown()."""
    _served(agent, service, peer, max_workers).open(None)
    agent._ended.wait()


def serve_once(
    agent: PeerAgent, service: Any, peer: Optional[str] = None, channel: Any = None, max_workers: Optional[int] = None
) -> None:
    """Serves one call, and returns. Further calls wait for the next serve_once() or serve()."""
    done = threading.Event()
    _served(agent, service, peer, max_workers).open(done)
    while not done.wait(_LOOK_EVERY) and not agent._ended.is_set():
        pass


class _Served:
    """An object that is served to one peer, or to all. Thread: any."""

    def __init__(self, service: Any, peer: Optional[str]) -> None:
        self.service = service
        self._peer = peer
        self._one_call = threading.Lock()
        self._turn = threading.Condition()
        self._open = False
        self._once: List[threading.Event] = []
        self._room = threading.local()

    def open(self, once: Optional[threading.Event]) -> None:
        """Lets one call in, and sets `once` when it has ended; None: lets all in."""
        with self._turn:
            if once is None:
                self._open = True
            else:
                self._once.append(once)
            self._turn.notify_all()

    def run(self, function: Callable, kind: tuple, arguments: tuple) -> Any:
        call = current_call()
        if self._peer is not None and call.peer != self._peer:
            raise PermissionDenied(f"this is served to {self._peer} only, not to {call.peer}")
        with self._turn:
            if not self._turn.wait_for(lambda: self._open or self._once, call.seconds_left()):
                raise DeadlineExceeded("serve_once() was not called in time")
            ended = None if self._open else self._once.pop(0)
        try:
            return self._answer(function, kind, arguments)
        finally:
            if ended is not None:
                ended.set()

    def _answer(self, function: Callable, kind: tuple, arguments: tuple) -> list:
        raw, parallel, inplace = kind
        try:
            if raw or inplace:
                (request,) = arguments
                held = ctypes.create_string_buffer(bytes(request), len(request))
                where, size = ctypes.addressof(held), len(request)
                arguments = (where, size) if inplace else (_Channel(self._peer), where, size)
            if parallel:
                return [True, self._called(function, inplace, arguments)]
            with self._one_call:
                return [True, self._called(function, inplace, arguments)]
        except Exception as error:
            return [False, type(error).__name__, str(error), traceback.format_exc()[-_TEXT_MOST:]]

    def _called(self, function: Callable, inplace: bool, arguments: tuple) -> Any:
        if not inplace:
            return function(self.service, *arguments)
        if not hasattr(self._room, "bytes"):
            self._room.bytes = ctypes.create_string_buffer(_ROOM)
        size = function(self.service, *arguments, ctypes.addressof(self._room.bytes), _ROOM)
        if not isinstance(size, int) or not 0 <= size <= _ROOM:
            raise ValueError(f"an in-place method returned {size!r}, must be 0 to {_ROOM}")
        return bytes(memoryview(self._room.bytes)[:size])


class _Channel:
    """What a raw method is given first."""

    def __init__(self, peer: Optional[str]) -> None:
        self.peer = peer or current_call().peer


def _served(agent: PeerAgent, service: Any, peer: Optional[str], max_workers: Optional[int]) -> _Served:
    name = _service_name(type(service), peer)
    with agent._lock:
        known = agent._served.get(name)
        if known is not None and known.service is service:
            return known
        served = _Served(service, peer)
        workers = max_workers or int(os.environ.get("SLIME_RPC_SERVER_WORKERS", "1"))
        agent._agent.serve(_as_service(served), name, workers=workers)
        agent._served[name] = served
    return served


def _as_service(served: _Served) -> Any:
    """Returns an object with a method of Slime for each marked method."""

    def one(function: Callable, kind: tuple, name: str) -> Callable:
        def call(self: Any, *arguments: Any) -> Any:
            return served.run(function, kind, arguments)

        call.__name__ = name
        return _slime_method(call)

    kinds = _methods_of(type(served.service))
    body = {name: one(getattr(type(served.service), name), kind, name) for name, kind in kinds.items()}
    return type(type(served.service).__name__, (), body)()


def _methods_of(service: type) -> Dict[str, tuple]:
    found = {name: getattr(getattr(service, name), "__dlslime_method__", None) for name in dir(service)}
    return {name: kind for name, kind in found.items() if kind is not None}


def _service_name(service: type, peer: Optional[str]) -> str:
    return f"dlslime.rpc.{service.__name__}" + (f".to.{peer}" if peer is not None else "")


def _bytes_of(data: Any) -> bytes:
    if not callable(data):
        return bytes(data)
    room = ctypes.create_string_buffer(_ROOM)
    size = data(ctypes.addressof(room), _ROOM)
    if not isinstance(size, int) or not 0 <= size <= _ROOM:
        raise RpcError(f"the writer of a request returned {size!r}, must be 0 to {_ROOM}")
    return bytes(memoryview(room)[:size])


def _as_rpc_error(error: Error) -> RpcError:
    late = isinstance(error, (DeadlineExceeded, WaitTimeout)) or error.code == _slime.Code.DEADLINE_EXCEEDED
    return (RpcTimeoutError if late else RpcError)(str(error))
