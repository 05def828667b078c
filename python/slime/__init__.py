"""Slime: peer agents, one-sided transfers and RPC over RDMA mailboxes, or plain TCP.

    with slime.PeerAgent("worker:0", ctrl_url="http://127.0.0.1:4479") as agent:
        agent.serve(Calc())
        print(agent.peer("worker:1").proxy("Calc").add(1, 2))
"""

from __future__ import annotations

from typing import Any

from slime import _memory
from slime._agent import PeerAgent
from slime._async_call import AsyncCall
from slime._attachments import release
from slime._cache import CacheClient
from slime._devices import RdmaDevice, RdmaGid, RdmaPort, devices
from slime._endpoint import Endpoint, EndpointInfo
from slime._errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    Corrupt,
    DeadlineExceeded,
    Error,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    WaitTimeout,
)
from slime._info import AgentInfo, ErrorInfo, OperationInfo, PeerInfo, RegisteredPeer, RegistryInfo
from slime._interceptors import (
    ClientCall,
    ClientTracing,
    Interceptor,
    Logging,
    ServerTracing,
    Timing,
    TraceContext,
    current_trace,
    timing_of,
    use_trace,
)
from slime._memory import region_of
from slime._peer import AsyncProxy, Peer, Proxy
from slime._proxy import Retry
from slime._raw import RawPeer
from slime._service import Call, current_call, method
from slime._slime import (
    AttachedBody,
    Attachment,
    BlockOffsets,
    BlockStrides,
    Code,
    Copy,
    Future,
    LogLevel,
    MemoryRegion,
    Pages,
    Payload,
    PreparedBatch,
    Priority,
    Progress,
    RemoteRegion,
    Rights,
    StreamEnd,
    Transfer,
    dump,
    dump_on_signal,
    set_log_level,
    version,
)
from slime._streams import AsyncServerStream, AsyncStream, ServerStream, Stream
from slime._wait import as_completed, wait_all, wait_any

__version__ = version()


def __getattr__(name: str) -> Any:
    # The names of an earlier package called slime, the Slime Transfer Engine.
    if name in ("RDMAEndpoint", "available_nic", "avaliable_nic"):
        from slime.compat import dlslime

        return getattr(dlslime, name)
    raise AttributeError(f"module 'slime' has no attribute {name!r}")


def empty(
    shape: Any,
    dtype: Any = "float64",
    *,
    agent: PeerAgent,
    rights: Rights = Rights.LOCAL,
    pages: Pages = Pages.DEFAULT,
) -> Any:
    """Returns a zeroed NumPy array in new registered memory of `agent`, as agent.empty() does."""
    return _memory.empty(agent, shape, dtype, rights, pages)


__all__ = [
    "Aborted",
    "AgentInfo",
    "AlreadyExists",
    "AsyncCall",
    "AsyncProxy",
    "Attachment",
    "BlockOffsets",
    "BlockStrides",
    "AsyncServerStream",
    "AsyncStream",
    "CacheClient",
    "Call",
    "Cancelled",
    "ClientCall",
    "ClientTracing",
    "Code",
    "Copy",
    "Corrupt",
    "DeadlineExceeded",
    "Endpoint",
    "EndpointInfo",
    "Error",
    "ErrorInfo",
    "Future",
    "Interceptor",
    "Internal",
    "InvalidArgument",
    "LogLevel",
    "Logging",
    "MemoryRegion",
    "NotFound",
    "OperationInfo",
    "Pages",
    "Peer",
    "PeerAgent",
    "PeerInfo",
    "PermissionDenied",
    "PreparedBatch",
    "Priority",
    "Progress",
    "Proxy",
    "RawPeer",
    "RdmaDevice",
    "RdmaGid",
    "RdmaPort",
    "RegisteredPeer",
    "RegistryInfo",
    "RemoteRegion",
    "ResourceExhausted",
    "Retry",
    "Rights",
    "ServerStream",
    "ServerTracing",
    "Stream",
    "Timing",
    "TraceContext",
    "Transfer",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "WaitTimeout",
    "__version__",
    "as_completed",
    "current_call",
    "current_trace",
    "devices",
    "dump",
    "dump_on_signal",
    "empty",
    "method",
    "region_of",
    "release",
    "set_log_level",
    "timing_of",
    "use_trace",
    "wait_all",
    "wait_any",
]
