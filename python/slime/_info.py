"""The dicts that PeerAgent.info(), Peer.info() and PeerAgent.list_peers() return, with their
fields. Later versions may add keys."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict


class ErrorInfo(TypedDict):
    """An error. code: name of the code, such as "unavailable"; text: description for people."""

    code: str
    text: str


class PeerInfo(TypedDict, total=False):
    """A peer that an agent knows: Peer.info().

    name: as given to agent.peer(), or as the peer calls itself. address: "host:port"; empty: not
        known yet.
    peer, instance: the name and the id of the connected peer; empty: no connection.
    provider: "tcp", "shm", "verbs". reason: why this provider was chosen, and the others were not.
    state: "idle", "resolving", "handshaking", "ready", ... error: of the last attempt or
        connection, or None.
    failures: attempts that failed since the last connection. waiting: number of operations that
        wait for a connection. connects: number of connections since the agent started.
    connection: id of the connection; 0: none, and the keys below are missing.
    opened_by_us: whether this agent opened the connection. endpoint: queues, windows and timeouts
        of the connection, as text for people.
    in_flight: number of operations under way on the connection. credits: number of messages that
        the peer would take now.
    counters: of the connection, by name; sizes are in bytes where the name says so.
    """

    name: str
    address: str
    peer: str
    instance: str
    provider: str
    reason: str
    state: str
    error: Optional[ErrorInfo]
    failures: int
    waiting: int
    connects: int
    connection: int
    opened_by_us: bool
    endpoint: str
    in_flight: int
    credits: int
    counters: Dict[str, int]


class RegistryInfo(TypedDict):
    """The state of an agent's registration with nanoctrl.

    state: "registered", ... error: of the last exchange that failed, or None.
    ttl_ms: milliseconds that the lease lasts without a heartbeat. newest_key: id of the newest key
        of the scope; 0: no keys. heartbeats, registrations: numbers since the agent started.
    """

    url: str
    state: str
    error: Optional[ErrorInfo]
    incarnation: int
    server_epoch: int
    revision: int
    ttl_ms: int
    newest_key: int
    heartbeats: int
    registrations: int


class OperationInfo(TypedDict):
    """An operation in flight.

    what: "call cache.get". stage: "under way", ... age_ms: milliseconds since the operation began.
        deadline_ms: milliseconds until its deadline.
    """

    what: str
    peer: str
    stage: str
    age_ms: int
    deadline_ms: int


class AgentInfo(TypedDict, total=False):
    """An agent: PeerAgent.info().

    address: address that peers connect to. provider: the agent's option `provider`.
    reason: which providers work on this machine, and why the others do not.
    outage_tolerated_ms: milliseconds. memory_bytes, max_payload_bytes: bytes.
    state: "open", "closed", "forked"; most keys below are missing unless it is "open".
    registry: missing without a ctrl_url.
    server: requests, refused and expired count since the start of the agent; queued and running
        count the present.
    device: counters of the network adapters, as their drivers name them; they include the traffic
        of other processes.
    loop: why the agent's loop thread did not answer; if present, the keys below are missing.
    connections, regions_published, operations_in_flight: numbers of the present. The other numbers
        count since the start of the agent.
    port: counters of all connections, including ended ones.
    operations: the oldest operations in flight.
    """

    name: str
    scope: str
    address: str
    instance: str
    kind: str
    provider: str
    reason: str
    outage_tolerated_ms: int
    memory_bytes: int
    max_payload_bytes: int
    state: str
    registry: RegistryInfo
    server: Dict[str, int]
    device: Dict[str, int]
    loop: str
    connections: int
    connections_made: int
    strangers_evicted: int
    receives_given_back: int
    over_budget: int
    answers_revoked: int
    regions_published: int
    port: Dict[str, int]
    operations_in_flight: int
    peers: List[PeerInfo]
    operations: List[OperationInfo]


class RegisteredService(TypedDict):
    """A service of a RegisteredPeer. methods: names of its methods; empty if the peer does not tell
    them. health: "serving", "draining", "not_serving"."""

    name: str
    kind: str
    methods: List[str]
    health: str
    labels: Dict[str, str]


class RegisteredRegion(TypedDict):
    """A region of a RegisteredPeer. length_bytes: size in bytes. rights: "local", "read", "write",
    "read_write"."""

    name: str
    length_bytes: int
    rights: str


class RegisteredPeer(TypedDict):
    """A peer in nanoctrl's list: PeerAgent.list_peers().

    incarnation: number that grows with each new owner of the name. revision: revision of the scope
    when this record last changed. expires_in_ms: milliseconds left of the lease.
    """

    name: str
    scope: str
    instance: str
    address: str
    kind: str
    providers: List[str]
    metadata: Dict[str, str]
    services: List[RegisteredService]
    regions: List[RegisteredRegion]
    incarnation: int
    revision: int
    expires_in_ms: int
