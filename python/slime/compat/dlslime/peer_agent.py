"""PeerAgent of DLSlime on Slime and its nanoctrl."""

from __future__ import annotations

import secrets
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from slime import _slime
from slime._agent import PeerAgent as _Agent
from slime._errors import Error, InvalidArgument, NotFound, Unavailable
from slime._peer import Peer
from slime._service import method
from slime.compat import _common
from slime.compat.dlslime import _connection, _memory, _resource
from slime.compat.dlslime._connection import PeerConnection
from slime.compat.dlslime._endpoint import available_nic, device_settings
from slime.compat.dlslime._transfers import Imms, SlimeFuture, SlimeImmRecvFuture

__all__ = ["MemoryNotFound", "NotConnected", "PeerAgent", "PeerConnection", "start_peer_agent"]

_SERVICE = "compat.dlslime"
_THEIR_PORT = ":3000"
# Connections whose notifications are kept: the newest.
_IMMS_KEPT = 65536


class MemoryNotFound(NotFound, RuntimeError):
    """There is no memory of this name. A RuntimeError, as DLSlime's programs expect."""


class NotConnected(Unavailable, RuntimeError):
    """There is no connection to the peer, or no registry. A RuntimeError, as DLSlime's programs expect."""


class PeerAgent:
    """An agent that finds its peers by nanoctrl and connects to them. A context manager. Thread: any.

    nanoctrl_url, also called ctrl_url and server_url: "http://host:port". alias: the agent's name,
    unique in its scope; None: a name of `name_prefix` and digits. device: one of available_nic();
    None: Slime picks. scope: agents see the names of their own scope. ib_port, link_type, qp_num:
    checked, otherwise ignored.
    """

    def __init__(
        self,
        nanoctrl_url: Optional[str] = None,
        alias: Optional[str] = None,
        device: Optional[str] = None,
        scope: Optional[str] = None,
        *,
        server_url: Optional[str] = None,
        ctrl_url: Optional[str] = None,
        name_prefix: str = "agent",
        ib_port: int = 1,
        link_type: Optional[str] = None,
        qp_num: int = 1,
    ) -> None:
        url = nanoctrl_url or ctrl_url or server_url or f"http://127.0.0.1{_THEIR_PORT}"
        verbs = device_settings(device or "", ib_port, link_type or "RoCE", qp_num)
        self._agent = _started(url, alias or f"{name_prefix}-{secrets.token_hex(4)}", scope, verbs)
        self.alias = self._agent.name
        self.nanoctrl_url = url
        self.scope = scope
        self.device = device or available_nic()[0]
        self._lock = threading.Lock()
        self._memory = _memory.Memory(self._agent)
        self._remote = _memory.Names()
        self._connections: Dict[str, PeerConnection] = {}  # by peer
        self._imms: Dict[int, Imms] = {}  # by connection
        self._served: Dict[str, Any] = {}  # of rpc.py
        self._caches: Dict[str, Any] = {}  # CacheMemory by peer
        self._ended = threading.Event()
        self._agent.on_imm(self._notified)
        self._agent.serve(_About(self), _SERVICE, workers=1)
        threading.Thread(target=self._accept, name="slime-dlslime-accept", daemon=True).start()

    # ---- discovery

    def list_agents(self) -> List[str]:
        """Returns the names of the scope's live agents."""
        return sorted(self.query())

    query_active_agent = list_agents

    def query(self) -> Dict[str, Dict[str, Any]]:
        """Returns the scope's live agents by name."""
        found = {}
        for each in self._agent.list_peers(_common.timeout()):
            keys = sorted(filter(None, (_memory.name_of(region["name"]) for region in each["regions"])))
            found[each["name"]] = {
                "name": each["name"],
                "device": self.device if each["name"] == self.alias else "",
                "ib_port": 1,
                "link_type": "",
                "address": each["address"],
                "resource": _resource.of_record(each["address"], keys),
                "memory_keys": keys,
            }
        return found

    def get_resource(self, peer_alias: Optional[str] = None) -> Optional[Dict[str, Any]]:
        """Returns what an agent says about its machine; of an agent that is not connected, what the
        registry knows. None: there is no such agent."""
        if peer_alias is None or peer_alias == self.alias:
            return _resource.of_this_machine(self._agent.address, self.list_mem_keys())
        connection = self.query_connection(peer_alias)
        if connection is not None and connection.is_connected():
            return self._carrier(peer_alias).peer.call(_SERVICE, "resource").result()
        record = self.query().get(peer_alias)
        return None if record is None else record["resource"]

    query_resource = get_resource

    def list_mem_keys(self, peer_alias: Optional[str] = None) -> List[str]:
        """Returns the names of an agent's memory; None: of the own."""
        if peer_alias is None or peer_alias == self.alias:
            return sorted(self._memory.info())
        record = self.query().get(peer_alias)
        return [] if record is None else record["memory_keys"]

    # ---- connections

    def connect_to(
        self,
        peer_alias: str,
        local_device: Optional[str] = None,
        peer_device: Optional[str] = None,
        ib_port: int = 1,
        qp_num: int = 1,
        min_bw: Any = None,
        **_: Any,
    ) -> PeerConnection:
        """Begins to connect, and returns the connection: its wait() waits. Waits for a peer that is not
        there yet, up to SLIME_COMPAT_TIMEOUT. If there is a connection: returns that one."""
        device_settings(local_device or "", ib_port, "RoCE", qp_num)
        if peer_alias == self.alias:
            raise InvalidArgument(f"{peer_alias} is this agent itself")
        mine, theirs = local_device or self.device, peer_device or local_device or self.device
        with self._lock:
            known = self._connections.get(peer_alias)
            if known is not None and known.state != "failed":
                return known
            made = PeerConnection(self.alias, peer_alias, mine, theirs, ib_port, qp_num)
            self._connections[peer_alias] = made

        def connect() -> Peer:
            return self._agent.peer(peer_alias).wait_for_ready().of_connection(_common.timeout())

        threading.Thread(target=made._open, args=(connect,), name="slime-dlslime-connect", daemon=True).start()
        return made

    def set_desired_topology(self, target_peers: Union[str, Sequence[str]], **options: Any) -> None:
        """Begins to connect to these peers; wait_for_peers() waits."""
        for name in _names(target_peers):
            self.connect_to(name, **options)

    def wait_for_peers(self, peers: Union[str, Sequence[str]], timeout_sec: float = 60.0) -> None:
        """Waits until all these peers are connected, by either side. Raises Error."""
        for name in _names(peers):
            self.connect_to(name).wait(timeout_sec)

    def get_connections(self) -> Dict[str, Dict[str, PeerConnection]]:
        """Returns the connections by peer and conn_id, also those that peers have opened, and those that
        have ended."""
        with self._lock:
            return {peer: {each.conn_id: each} for peer, each in self._connections.items()}

    def query_connection(
        self, peer_alias: str, local_nic: Optional[str] = None, remote_nic: Optional[str] = None
    ) -> Optional[PeerConnection]:
        """Returns the connection to a peer; None: there is none. The NICs are not looked at: one
        connection serves them all."""
        with self._lock:
            return self._connections.get(peer_alias)

    # ---- memory

    def register_memory_region(self, name: str, ptr: int, *range_: int) -> int:
        """Registers memory: (name, ptr, offset, length) or (name, ptr, length). Returns its number, the
        handle. The memory stays in place until unregister_memory_region() or shutdown()."""
        return self._memory.register(name, *_memory.range_of(ptr, range_))

    def unregister_memory_region(self, name: str) -> bool:
        """Takes memory back: peers reach it no longer. Returns whether there was memory of this name."""
        try:
            self._memory.unregister(name)
        except NotFound:
            return False
        return True

    def get_mr_info(self, peer_alias: str, name: str, *_: Any, **__: Any) -> Optional[Dict[str, Any]]:
        """Returns what there is to know about a peer's memory, or the own; None: there is none. Has no
        address of a peer, and no keys."""
        if peer_alias == self.alias:
            info: Any = self._memory.info().get(name)
        else:
            try:
                region = _memory.remote(self._carrier(peer_alias).peer, name)
            except NotFound:
                return None
            info = {"handle": self._remote.number(name), "length": region.length_bytes}
        return None if info is None else {"agent_name": peer_alias, "mr_name": name, **info}

    def get_handle(self, name: str, peer_alias: Optional[str] = None, *_: Any, **__: Any) -> int:
        """Returns the number of the own memory, or of a peer's. Raises MemoryNotFound."""
        if peer_alias is not None and peer_alias != self.alias:
            return self.get_remote_handle(peer_alias, name)
        try:
            return self._memory.number(name)
        except NotFound as error:
            raise MemoryNotFound(error.text) from None

    get_local_handle = get_handle

    def get_remote_handle(self, peer_alias: str, name: str) -> int:
        """Returns the number of a peer's memory. Raises MemoryNotFound."""
        cache = self._caches.get(peer_alias)
        if cache is None or cache.name != name:
            try:
                _memory.remote(self._carrier(peer_alias).peer, name)
            except NotFound:
                raise MemoryNotFound(f"{peer_alias} has no memory {name!r}") from None
        return self._remote.number(name)

    # ---- transfers

    def read(self, peer_alias: str, batch: Sequence[Any], stream: Any = None, **_: Any) -> SlimeFuture:
        """Reads a batch from a peer. An item is (name, own offset, peer's offset, length), or (own name,
        peer's name, own offset, peer's offset, length); or with numbers in place of the names: (own
        number, peer's number, PEER'S offset, OWN offset, length), as an endpoint has it."""
        blocks = self._cache_blocks(peer_alias, batch)
        if blocks is not None:
            return SlimeFuture(*self._caches[peer_alias].read(blocks))
        return self._one_sided(peer_alias, batch, lambda peer, copies: peer.read(copies))

    def write(self, peer_alias: str, batch: Sequence[Any], stream: Any = None, **_: Any) -> SlimeFuture:
        """Writes a batch; as read()."""
        blocks = self._cache_blocks(peer_alias, batch)
        if blocks is not None:
            return SlimeFuture(self._caches[peer_alias].write(blocks), lambda _: 0)
        return self._one_sided(peer_alias, batch, lambda peer, copies: peer.write(copies))

    def write_with_imm(
        self, peer_alias: str, batch: Sequence[Any], imm_data: int = 0, stream: Any = None, **_: Any
    ) -> SlimeFuture:
        """Writes a batch, after which the peer's imm_recv() gets `imm_data`."""
        return self._one_sided(peer_alias, batch, lambda peer, copies: peer.write_with_imm(copies, imm_data))

    def imm_recv(self, peer_alias: str, stream: Any = None, **_: Any) -> SlimeImmRecvFuture:
        """Waits for the peer's next notification."""
        carrier = self._carrier(peer_alias)
        connection = self.query_connection(peer_alias)
        assert connection is not None
        imms = self._imms_of(carrier.peer.connection)
        return SlimeImmRecvFuture(lambda timeout: connection._next_imm(imms, timeout))

    def send(self, peer_alias: str, range_: Sequence[int], stream: Any = None, **_: Any) -> SlimeFuture:
        """Sends the bytes at (ptr, offset, length): done once a recv() of the peer has them."""
        ptr, offset, length = range_
        return self._carrier(peer_alias).send(self._memory.view(ptr + offset, length))

    def recv(self, peer_alias: str, range_: Sequence[int], stream: Any = None, **_: Any) -> SlimeFuture:
        """Receives the peer's next message, of exactly this length, into (ptr, offset, length)."""
        ptr, offset, length = range_
        return self._carrier(peer_alias).receive(self._memory.view(ptr + offset, length))

    # ---- the end

    def shutdown(self) -> None:
        """Leaves nanoctrl and closes the agent: operations under way fail."""
        self._ended.set()
        with self._lock:
            for imms in self._imms.values():
                imms.end()
        self._agent.close()

    close = shutdown

    def __enter__(self) -> PeerAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # ---- internal

    def _accept(self) -> None:
        while True:
            try:
                made = _connection.passive(self.alias, self._agent.accept(), self.device)
            except Error:
                return  # closed
            with self._lock:
                known = self._connections.get(made.peer_alias)
                # One under way finds this connection by itself.
                if known is None or known.state == "failed":
                    self._connections[made.peer_alias] = made

    def _notified(self, peer: Peer, imm: int) -> None:
        connection = peer.info().get("connection", 0)
        known = None if connection else self.query_connection(peer.name)  # it has ended meanwhile
        if known is not None and known.endpoint is not None:
            connection = known.endpoint.connection
        self._imms_of(connection).put(connection, imm)

    def _imms_of(self, connection: int) -> Imms:
        with self._lock:
            if connection not in self._imms:
                if len(self._imms) >= _IMMS_KEPT:
                    self._imms.pop(next(iter(self._imms)))
                self._imms[connection] = Imms()
            return self._imms[connection]

    def _carrier(self, peer_alias: str) -> Any:
        connection = self.query_connection(peer_alias)
        if connection is None:
            raise NotConnected(f"not connected to {peer_alias}: connect_to() comes first")
        return connection._carrier()

    def _cache_memory(self, peer_alias: str, name: str) -> Any:
        """Returns the memory of a cache that this agent is connected to."""
        from slime.compat.dlslime.cache._memory import CacheMemory

        with self._lock:
            if peer_alias not in self._caches:
                self._caches[peer_alias] = CacheMemory(self._agent, peer_alias, name)
            return self._caches[peer_alias]

    def _cache_blocks(self, peer_alias: str, batch: Sequence[Any]) -> Optional[List[Any]]:
        """Returns the blocks of a batch in a cache's memory; None: it is in other memory."""
        cache = self._caches.get(peer_alias)
        if cache is None or not any(self._remote.name(ordered(each)[1]) == cache.name for each in batch):
            return None
        connection = self.query_connection(peer_alias)
        if connection is None or not connection.is_connected():
            raise NotConnected(f"the connection to {peer_alias} has ended: connect_to() makes another")
        return [self._cache_block(cache, each) for each in batch]

    def _cache_block(self, cache: Any, item: Any) -> Any:
        from slime.compat.dlslime.cache._memory import Block

        mine, theirs, own_offset, cache_offset, length = ordered(item)
        if self._remote.name(theirs) != cache.name:
            raise InvalidArgument(f"a batch in {cache.name!r} of a cache has no other memory of its peer: {theirs!r}")
        if isinstance(item[0], int):  # of a manifest, whose source_offset, the second, is the cache's
            own_offset, cache_offset = cache_offset, own_offset
        return Block(self._memory.address(mine, own_offset, length), cache_offset, length)

    def _one_sided(self, peer_alias: str, batch: Sequence[Any], start: Callable[[Peer, Any], Any]) -> SlimeFuture:
        peer = self._carrier(peer_alias).peer
        return SlimeFuture(start(peer, [self._copy(peer, each) for each in batch]), lambda _: 0)

    def _copy(self, peer: Peer, item: Any) -> _slime.Copy:
        mine, theirs, own_offset, peers_offset, length = ordered(item)
        region = _memory.remote(peer, self._remote.name(theirs))
        return _slime.Copy(self._memory.find(mine).memory, own_offset, region, peers_offset, length)


class _About:
    def __init__(self, agent: PeerAgent) -> None:
        self._agent = agent

    @method
    def resource(self) -> Dict[str, Any]:
        return self._agent.get_resource() or {}


def ordered(item: Any) -> tuple:
    """Returns (own memory, peer's memory, own offset, peer's offset, length) of an item of a batch."""
    if len(item) == 4 and isinstance(item[0], str):
        return (item[0], *item)
    if len(item) == 5 and isinstance(item[0], str) and isinstance(item[1], str):
        return tuple(item)
    if len(item) == 5 and isinstance(item[0], int) and isinstance(item[1], int):
        mine, theirs, peers_offset, own_offset, length = item
        return mine, theirs, own_offset, peers_offset, length
    raise InvalidArgument(
        f"an item of a batch is (name, own offset, peer's offset, length), (own name, peer's name, own offset, peer's "
        f"offset, length), or (own number, peer's number, peer's offset, own offset, length), not {item!r:.200}"
    )


def start_peer_agent(nanoctrl_url: Optional[str] = None, alias: Optional[str] = None, **options: Any) -> PeerAgent:
    """Starts a PeerAgent, with the same arguments."""
    return PeerAgent(nanoctrl_url, alias, **options)


def _started(url: str, name: str, scope: Optional[str], verbs: Optional[Dict[str, Any]]) -> _Agent:
    options = {**_common.agent_options(), "verbs": verbs, "accepts": True, "kind": "dlslime"}
    try:
        return _Agent(name, scope=scope or "default", ctrl_url=url, listen=f"{_common.own_address()}:0", **options)
    except Unavailable as error:
        if not url.rstrip("/").endswith(_THEIR_PORT):
            raise NotConnected(error.text) from None
        raise NotConnected(
            f"{error.text}, or name Slime's own port: nanoctrl_url='{url.rstrip('/')[: -len(_THEIR_PORT)]}:4479'"
        ) from None


def _names(peers: Union[str, Sequence[str]]) -> List[str]:
    return [peers] if isinstance(peers, str) else list(peers)
