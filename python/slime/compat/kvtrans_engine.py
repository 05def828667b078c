"""KVTrans Engine's `kvtrans_engine` on Slime.

This module defines what the documents leave open:

- The n-th reg_kv() on a connection at one end belongs to the n-th one at the other end. What
  send_kv() sends with the id of one, recv_kv() receives with the id of the other.
- reg_kv() says how large the messages of the id may be: as large as the registered object.
  send_kv() may send another object that is not larger.
- send_kv() of up to 64 KiB returns once the peer has the bytes, which wait there for recv_kv(). A
  larger object stays in its memory until a recv_kv() of the peer reads it from there, without a copy
  in between: send_kv() returns then.
- recv_kv() receives one whole message, or none: a message longer than `max_size` stays, and the next
  recv_kv() gets it.
- Functions that return `success` return False, log the reason as a warning (logger
  "slime.compat"), and end after SLIME_COMPAT_TIMEOUT seconds (30), if the peer is dead, gone or
  slow. Wrong arguments raise.
- accept() waits until a client connects, or until `timeout`; Ctrl-C ends it.
- One connection carries everything: `ncpus` and `nconn_per_cpu` are checked and otherwise ignored.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Deque, Dict, NamedTuple, Optional, Tuple

from slime._errors import Error, InvalidArgument, NotFound
from slime.compat import _common


# Objects up to this size are copied, and wait at the peer.
_COPIED_MOST = 64 << 10


class _Connection(NamedTuple):
    host: _common.Connection
    kvs: Dict[int, int]  # size in bytes by number, from 1


class Engine:
    """An endpoint that connects to others and sends them buffers.

    if_name: the network interface at whose IPv4 address the engine listens. ncpus, nconn_per_cpu:
    ignored. listen_port: 0: a free port, which `port` has. Thread: any.
    """

    def __init__(self, if_name: str, ncpus: int = 1, nconn_per_cpu: int = 1, listen_port: int = 0) -> None:
        if ncpus < 1 or nconn_per_cpu < 1:
            raise InvalidArgument(f"ncpus is {ncpus}, nconn_per_cpu is {nconn_per_cpu}: both must be at least 1")
        self._lock = threading.Lock()
        self._connections: Dict[int, _Connection] = {}
        # Messages that were longer than `max_size`, by id.
        self._late: Dict[int, Deque[bytes]] = {}
        self._host = _common.Host("kvtrans_engine", _common.address_of(if_name), listen_port)
        self._host.serve()

    @property
    def port(self) -> int:
        """The port at which the engine listens."""
        return int(self._host.agent.address.rpartition(":")[2])

    def connect(self, ip_addr: str, port: int) -> Tuple[bool, int]:
        """Connects to an engine. Returns (success, conn_id)."""
        try:
            return True, self._add(self._host.connect(f"{ip_addr}:{port}"))
        except Error as error:
            _common.log.warning("connect to %s:%s: %s", ip_addr, port, error)
            return False, -1

    def accept(self, timeout: Optional[float] = None) -> Tuple[bool, str, int, int]:
        """Waits for an engine that connects. Returns (success, its ip, its port, conn_id)."""
        try:
            connection = self._host.accept(timeout)
        except Error as error:
            _common.log.warning("accept: %s", error)
            return False, "", 0, -1
        ip, _, port = connection.about["address"].rpartition(":")
        return True, ip.strip("[]"), int(port), self._add(connection)

    def reg_kv(self, conn_id: int, buffer: Any) -> Tuple[bool, int]:
        """Registers an object with the buffer protocol, such as an array. Returns (success, kv_id)."""
        size = memoryview(buffer).nbytes
        with self._lock:
            kvs = self._connection(conn_id).kvs
            kvs[len(kvs) + 1] = size
            return True, conn_id << 32 | len(kvs)

    def send_kv(self, kv_id: int, buffer: Any) -> bool:
        """Sends the bytes of an object that is at most as large as the registered one."""
        connection, number, most = self._find(kv_id)
        view = memoryview(buffer)
        if view.nbytes > most:
            raise InvalidArgument(f"send_kv of {view.nbytes} bytes: the object of reg_kv has {most}")
        try:
            data = view if view.c_contiguous else view.tobytes()
            if view.nbytes <= _COPIED_MOST:
                connection.peer.send(connection.tag(number), data).result()
            else:
                connection.peer.sendv(connection.tag(number), [data]).result()
        except Error as error:
            _common.log.warning("send_kv to %s: %s", connection.peer.name, error)
            return False
        return True

    def recv_kv(self, kv_id: int, max_size: int) -> Tuple[bool, bytes]:
        """Receives the next object that was sent. Returns (success, its bytes)."""
        connection, number, _ = self._find(kv_id)
        with self._lock:
            late = self._late.get(kv_id)
            data = late.popleft() if late else None
        try:
            if data is None:
                data = bytes(connection.peer.recv(connection.tag(number)).result())
        except Error as error:
            _common.log.warning("recv_kv from %s: %s", connection.peer.name, error)
            return False, b""
        if len(data) <= max_size:
            return True, data
        with self._lock:
            self._late.setdefault(kv_id, deque()).append(data)
        _common.log.warning("recv_kv of at most %s bytes: the next message has %s, and waits", max_size, len(data))
        return False, b""

    def close(self) -> None:
        """Closes all connections, and ends accept()."""
        self._host.close()

    def _add(self, connection: _common.Connection) -> int:
        with self._lock:
            conn_id = len(self._connections) + 1
            self._connections[conn_id] = _Connection(connection, {})
            return conn_id

    def _connection(self, conn_id: int) -> _Connection:
        found = self._connections.get(conn_id)
        if found is None:
            raise NotFound(f"there is no connection {conn_id}")
        return found

    def _find(self, kv_id: int) -> Tuple[_common.Connection, int, int]:
        with self._lock:
            connection, number = self._connection(kv_id >> 32), kv_id & 0xFFFFFFFF
            if number not in connection.kvs:
                raise NotFound(f"there is no kv_id {kv_id}: reg_kv() gives them")
            return connection.host, number, connection.kvs[number]

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
