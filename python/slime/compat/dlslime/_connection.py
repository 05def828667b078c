"""PeerConnection: the connection of an agent of DLSlime to one peer."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Optional

from slime._errors import DeadlineExceeded, Error, Unavailable
from slime._peer import Peer
from slime.compat import _common
from slime.compat.dlslime._transfers import Imms, Messages

# Seconds between two looks at whether a connection that is waited on is still there.
_LOOK_EVERY = 0.2


class PeerConnection:
    """A connection to one peer, also under way or ended. Once it has ended it stays ended: the agent's
    connect_to(), or the peer's, makes another. Thread: any.

    conn_id: names the two agents and their devices. peer_alias: the peer. local_nic, remote_nic,
    ib_port, qp_num: as given to connect_to(); the transport picks its own.
    """

    def __init__(self, alias: str, peer_alias: str, local_nic: str, remote_nic: str, ib_port: int, qp_num: int) -> None:
        self.conn_id = f"{alias}:{local_nic}:port{ib_port}->{peer_alias}:{remote_nic}:port{ib_port}#qp{qp_num}"
        self.peer_alias = peer_alias
        self.local_nic = local_nic
        self.remote_nic = remote_nic
        self.ib_port = ib_port
        self.qp_num = qp_num
        self._settled = threading.Event()
        self._messages: Optional[Messages] = None
        self._error: Optional[Error] = None

    @property
    def state(self) -> str:
        """"connecting", "connected", or "failed": it could not be made, or has ended."""
        if not self._settled.is_set():
            return "connecting"
        if self._messages is None:
            return "failed"
        return "connected" if self._messages.peer.info()["state"] == "ready" else "failed"

    @property
    def error(self) -> Optional[Error]:
        """Why it could not be made; None: no such error."""
        return self._error

    @property
    def endpoint(self) -> Optional[Peer]:
        """The slime.Peer of the connection; None: it is not made."""
        return None if self._messages is None else self._messages.peer

    def is_connected(self) -> bool:
        return self.state == "connected"

    def wait(self, timeout: Optional[float] = 60.0) -> PeerConnection:
        """Waits until it is made. Raises Error if it could not be made or has ended, DeadlineExceeded
        after `timeout` seconds."""
        if not self._settled.wait(timeout):
            raise DeadlineExceeded(f"no connection to {self.peer_alias} within {timeout} s")
        if self._error is not None:
            raise self._error
        if not self.is_connected():
            raise Unavailable(f"the connection to {self.peer_alias} has ended: connect_to() makes another")
        return self

    def __repr__(self) -> str:
        return f"<PeerConnection {self.conn_id} {self.state}>"

    # ---- internal

    def _open(self, connect: Callable[[], Peer]) -> None:
        try:
            self._messages = Messages(connect())
        except Error as error:
            self._error = error
        self._settled.set()

    def _carrier(self) -> Messages:
        """Returns what transfers use, also of a connection that has ended. Waits for one under way."""
        if not self._settled.wait(_common.timeout()):
            raise DeadlineExceeded(f"no connection to {self.peer_alias} so far")
        if self._error is not None:
            raise self._error
        assert self._messages is not None
        return self._messages

    def _next_imm(self, imms: Imms, timeout: Optional[float]) -> int:
        """Waits for a notification, as long as the connection is there."""
        until = time.monotonic() + (_common.timeout() if timeout is None else timeout)
        while True:
            left = until - time.monotonic()
            there = self.is_connected()  # before the look: what it brought is taken
            try:
                return imms.take(lambda: None, max(0.0, min(left, _LOOK_EVERY)))
            except DeadlineExceeded:
                if not there:
                    raise Unavailable(f"the connection to {self.peer_alias} has ended") from None
                if left <= _LOOK_EVERY:
                    raise


def passive(alias: str, peer: Peer, nic: str) -> PeerConnection:
    """Returns the connection that a peer has opened."""
    made: Any = PeerConnection(alias, peer.info()["peer"] or peer.name, nic, nic, 1, 1)
    made._open(lambda: peer)
    return made
