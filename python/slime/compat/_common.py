"""What the modules of slime.compat share: settings, addresses, connections."""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import secrets
import shutil
import socket
import struct
import sys
from typing import Any, Dict, Optional, Sequence, Union

from slime._agent import PeerAgent
from slime._endpoint import Endpoint
from slime._errors import DeadlineExceeded, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from slime._peer import Peer
from slime._service import current_call, method

log = logging.getLogger("slime.compat")

_SIOCGIFADDR = 0x8915
# Connections that may wait for accept().
_ARRIVED_MOST = 4096


def timeout() -> float:
    """Returns the seconds that a call may take."""
    text = os.environ.get("SLIME_COMPAT_TIMEOUT", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise InvalidArgument(f"SLIME_COMPAT_TIMEOUT is {text!r}, must be a number of seconds above 0")
    return seconds


def address_of(interface: str) -> str:
    """Returns the IPv4 address of a network interface. Raises NotFound, with the interfaces that
    there are."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(name for _, name in socket.if_nameindex())
            raise NotFound(
                f"no IPv4 address of a network interface {interface!r} ({error.strerror}); there are: {known}"
            ) from None
    return socket.inet_ntoa(answer[20:24])


def own_address() -> str:
    """Returns the address at which systems listen that leave it open."""
    host = os.environ.get("SLIME_COMPAT_HOST", "")
    if host:
        return host
    if not (os.environ.get("SLIME_COMPAT_TOKEN") or os.environ.get("SLIME_COMPAT_INSECURE") == "1"):
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel picks the address of the route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def base_port() -> int:
    """Returns the port of an endpoint with index 0, where a system counts ports by an index."""
    text = os.environ.get("SLIME_COMPAT_PORT", "7400")
    if not text.isdigit() or not 1 <= int(text) <= 65000:
        raise InvalidArgument(f"SLIME_COMPAT_PORT is {text!r}, must be 1 to 65000")
    return int(text)


def agent_options() -> Dict[str, Any]:
    """Returns the options of every agent, by the environment."""
    return {
        "provider": os.environ.get("SLIME_PROVIDER", "auto"),
        "token": os.environ.get("SLIME_COMPAT_TOKEN", ""),
        "insecure": os.environ.get("SLIME_COMPAT_INSECURE", "") == "1",
        "timeout": timeout(),
        # A connection of these systems stays until it is closed, however long it is idle.
        "max_connections": 65536,
    }


def endpoint(**options: Any) -> Endpoint:
    """Starts an endpoint at own_address(), by the environment."""
    return Endpoint(listen=f"{own_address()}:0", **agent_options(), **options)


def program(name: str) -> str:
    """Returns the path of one of Slime's programs: beside this Python, or in PATH. Raises NotFound."""
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise NotFound(f"there is no program {name} beside this Python or in PATH")
    return found


class Ended:
    """A future that has ended with a value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def done(self) -> bool:
        return True

    def result(self, timeout: Optional[float] = None) -> Any:
        return self._value

    def __await__(self) -> Any:
        yield from ()
        return self._value


class Connection:
    """One connection of the other system: of one process to another, which may have several.

    peer: the other end, of one connection of the agent: once that has ended, so has this one. about:
    what the other end said about itself. Thread: any.
    """

    def __init__(self, peer: Peer, key: int, about: Dict[str, Any]) -> None:
        self.peer = peer
        self.about = about
        self._key = key

    def alive(self) -> bool:
        """Returns whether the connection is there, as far as this end knows."""
        return self.peer.info()["state"] == "ready"

    def tag(self, number: int) -> int:
        """Returns the tag of the messages with this number, of 32 bits, on this connection."""
        return self._key << 32 | number


class Host:
    """An agent whose connections are made one by one, and accepted in that order.

    system: whose connections these are. about: what the agent says about itself; "address" is added.
    The other end must say the same things, with values of the same types, but for those of `optional`,
    which it may leave out. verbs: see PeerAgent. keeps: connections wait for accept(). Nothing connects
    before serve(). Thread: any.
    """

    def __init__(
        self,
        system: str,
        host: str,
        port: int,
        about: Optional[Dict[str, Any]] = None,
        verbs: Optional[Dict[str, Union[int, bool, str]]] = None,
        keeps: bool = True,
        optional: Sequence[str] = (),
    ) -> None:
        self._service = f"compat.{system}"
        # The connections that accept() has not returned yet; None: the host is closed.
        self._arrived: queue.SimpleQueue[Optional[Connection]] = queue.SimpleQueue()
        self.agent = PeerAgent(listen=f"{host}:{port}", verbs=verbs, **agent_options())
        self.about = {**(about or {}), "address": self.agent.address}
        self._keeps = keeps
        self._optional = frozenset(optional)

    def serve(self) -> None:
        """Takes connections from now on."""
        self.agent.serve(_Greeter(self), self._service, workers=1)

    def connect(self, address: str) -> Connection:
        """Connects to the host at "host:port". Raises Error."""
        peer = self.agent.peer(address).of_connection()
        key = secrets.randbits(31)
        about = self._checked(peer.call(self._service, "hello", key, self.about).result())
        return Connection(peer, key, about)

    def greet(self, connection: int, key: int, about: Any) -> Dict[str, Any]:
        """Takes the connection that a peer makes over this one of the agent. Returns what the peer is
        told."""
        about = self._checked(about)
        if not 0 <= key < 1 << 31:
            raise InvalidArgument(f"the key of a connection is {key}")
        if self._keeps:
            if self._arrived.qsize() >= _ARRIVED_MOST:
                raise ResourceExhausted(f"{_ARRIVED_MOST} connections wait to be accepted already")
            self._arrived.put(Connection(self.agent.peer_of(connection), key, about))
        return self.about

    def _checked(self, about: Any) -> Dict[str, Any]:
        """Returns what a peer says about itself, with the keys that this end expects."""
        fits = isinstance(about, dict) and all(
            type(about.get(key)) is type(mine)
            for key, mine in self.about.items()
            if key in about or key not in self._optional
        )
        if not fits or not _has_port(about["address"]):
            raise InvalidArgument(f"a peer of {self._service} says about itself {about!r:.200}")
        return about

    def accept(self, seconds: Optional[float] = None) -> Connection:
        """Waits for a connection; `seconds`: None: without end. Raises DeadlineExceeded, or
        Unavailable once the host is closed. Ctrl-C ends the wait."""
        try:
            found = self._arrived.get(timeout=seconds)
        except queue.Empty:
            raise DeadlineExceeded(f"nothing has connected within {seconds} s") from None
        if found is None:
            self._arrived.put(None)  # for other threads that accept
            raise Unavailable("closed")
        return found

    def close(self) -> None:
        self._arrived.put(None)
        self.agent.close()


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return host != "" and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535


class _Greeter:
    def __init__(self, host: Host) -> None:
        self._host = host

    @method
    def hello(self, key: int, about: Dict[str, Any]) -> Dict[str, Any]:
        return self._host.greet(current_call().connection, key, about)
