"""Agents without a registry, which connect to peers that the user names and accept those that
connect."""

from __future__ import annotations

import json
from typing import Any, Dict, Optional, TypedDict, Union

from slime import _slime
from slime._agent import PeerAgent
from slime._errors import InvalidArgument
from slime._peer import Peer


class EndpointInfo(TypedDict):
    """What a peer needs to connect to an endpoint. Has no keys.

    name: that the endpoint gives itself. address: "host:port". instance: id of the process.
    """

    name: str
    address: str
    instance: str


class Endpoint:
    """An agent without a registry: it listens, connects to peers that the user names, and accepts
    peers that connect to it.

        with slime.Endpoint() as endpoint:
            tell_the_other_process(endpoint.info())
            peer = endpoint.accept()

    Closed at the end of its `with` block. Thread: any.

    name: empty: a random name. verbs: the adapter and other settings of RDMA, as for PeerAgent;
    devices() lists the adapters. options: further options of PeerAgent, such as `listen`,
    `advertise`, `provider`, `token` and `timeout`, but not `ctrl_url`.
    agent: the PeerAgent, for everything that is not here.
    """

    def __init__(
        self, name: str = "", *, verbs: Optional[Dict[str, Union[int, bool, str]]] = None, **options: Any
    ) -> None:
        if options.get("ctrl_url"):
            raise InvalidArgument("an endpoint has no registry (ctrl_url): start a PeerAgent")
        self.agent = PeerAgent(name, verbs=verbs, **{**options, "accepts": True})

    def info(self) -> EndpointInfo:
        """Returns what connect() of another process takes; json.dumps() makes about 120 bytes of it."""
        return json.loads(self.agent._endpoint_info_json())

    def connect(self, to: Union[EndpointInfo, str, bytes], timeout: Optional[float] = None) -> Peer:
        """Connects to another endpoint, or to an agent, and returns the peer of that connection, as
        Peer.of_connection() does. If the two are connected already: of the connection that there is.

        to: its info() as a dict or as JSON, or "host:port". timeout: seconds; None: the default.
        Raises Unavailable, also if another process has the address by now; InvalidArgument if `to`
        is not an info.
        """
        if isinstance(to, bytes):
            to = to.decode("utf-8", "replace")
        elif not isinstance(to, str):
            to = json.dumps(to)
        return Peer(self.agent._connect_to(to, timeout))

    def accept(self, timeout: Optional[float] = None) -> Peer:
        """Waits for the next connection that a peer has opened, in order, and returns the peer of that
        connection: see PeerAgent.accept().

        timeout: seconds; None: none. Ctrl-C ends the wait. Raises DeadlineExceeded, or Unavailable
        once the endpoint is closed.
        """
        return self.agent.accept(timeout)

    def register_memory(
        self, name: str, buffer: Any, rights: _slime.Rights = _slime.Rights.READ_WRITE
    ) -> _slime.MemoryRegion:
        """Registers the memory of `buffer` (an array, a bytearray, ...), without a copy, and publishes
        it under `name`: peers find it with peer.region(name). The region keeps the buffer alive."""
        return self._published(name, self.agent.register_memory(buffer, rights))

    def allocate(
        self, name: str, bytes: int, rights: _slime.Rights = _slime.Rights.READ_WRITE
    ) -> _slime.MemoryRegion:
        """Allocates zeroed memory, and publishes it under `name`: peers find it with
        peer.region(name)."""
        return self._published(name, self.agent.allocate(bytes, rights))

    def _published(self, name: str, region: _slime.MemoryRegion) -> _slime.MemoryRegion:
        try:
            self.agent.publish(name, region)
        except BaseException:
            region.close()
            raise
        return region

    def close(self, timeout: float = 2.0) -> None:
        """Closes the agent, as PeerAgent.close() does, and ends accept()."""
        self.agent.close(timeout)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
