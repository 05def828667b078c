"""DLSlime's `dlslime`, also known as the Slime Transfer Engine, on Slime, for host memory.

dlslime.rpc is SlimeRPC, dlslime.cache the client of its cache. This package defines what the documents
leave open:

- `available_nic()` on a machine without an active RDMA port returns ["slime"], a device that stands for
  shared memory and TCP.
- Memory is found by the name that both ends gave to it. register_memory_region() returns its number,
  which a batch may use in place of the name.
- In an endpoint's batch `target_offset` is in the peer's memory and `source_offset` in the own, for
  reads and writes. In an agent's batch with names the own offset is first: see PeerAgent.read().
- Messages arrive in order, and go from memory to memory: a send is done once a recv of the peer has
  the bytes, which must not change until then. A recv takes one message of exactly its length. A longer
  one fails at both ends, and nothing is written. A shorter one is written, and fails at the receiver.
- wait() raises if the operation failed, if the peer is dead or gone, or after SLIME_COMPAT_TIMEOUT
  seconds (30). It never reports as done what did not arrive.
- An endpoint has one peer, over one connection, and an agent one connection to each peer. Once that has
  ended, operations raise Unavailable, until connect() or connect_to().
"""

from __future__ import annotations

from slime.compat.dlslime._endpoint import RDMAEndpoint, available_nic
from slime.compat.dlslime._transfers import SlimeFuture, SlimeImmRecvFuture
from slime.compat.dlslime.cache.types import Assignment
from slime.compat.dlslime.peer_agent import PeerAgent, PeerConnection, start_peer_agent

avaliable_nic = available_nic  # as the first version spells it

__all__ = [
    "Assignment",
    "PeerAgent",
    "PeerConnection",
    "RDMAEndpoint",
    "SlimeFuture",
    "SlimeImmRecvFuture",
    "available_nic",
    "avaliable_nic",
    "start_peer_agent",
]
