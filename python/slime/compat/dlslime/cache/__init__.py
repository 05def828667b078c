"""The client of DLSlime's cache, on slime-cache: `slime-cache start --http HOST:PORT`.

store() plans a version; the agent writes its bytes at the manifest's offsets. The version is there, for
query(), once all of them are written: the wait() of that write says whether it is. Until then query() is
a CacheError with the status 404.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, List, Optional

from slime._agent import PeerAgent as _Agent
from slime._errors import InvalidArgument, NotFound
from slime.compat import _common
from slime.compat.dlslime.cache import types
from slime.compat.dlslime.cache._memory import CacheMemory
from slime.compat.dlslime.cache.types import Assignment
from slime.compat.dlslime.peer_agent import PeerAgent

__all__ = ["Assignment", "CacheClient", "CacheError", "discover_cache_url"]

_ANSWER_MOST = 64 << 20  # bytes
_HTTP = "cache.http"  # the service of slime-cache that tells its URL


class CacheError(RuntimeError):
    """The cache refused a request, or did not answer. status: of HTTP; 0: no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def discover_cache_url(*, ctrl: str, scope: Optional[str] = None, service_id: Optional[str] = "cache:0") -> str:
    """Asks nanoctrl for the cache with this name, or else for any, and the cache for its URL. Raises
    NotFound."""
    with _Agent(scope=scope or "default", ctrl_url=ctrl, **_common.agent_options()) as agent:
        caches = [each["name"] for each in agent.list_peers(_common.timeout()) if each["kind"] == "cache"]
        if not caches:
            raise NotFound(f"no cache is registered at {ctrl}")
        name = service_id if service_id in caches else caches[0]
        return str(agent.peer(name).call(_HTTP, "url").result())


def _keeps_secrets(url: str) -> bool:
    """Returns whether a token may go to this URL: by TLS, to this host, or if all may be insecure."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may begin with "127."
        here = host == "localhost"
    return parts.scheme == "https" or here or os.environ.get("SLIME_COMPAT_INSECURE", "") == "1"


def _told(error: urllib.error.HTTPError) -> str:
    """Returns the text of a refusal; empty if it does not come."""
    try:
        return error.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


class CacheClient:
    """A client of one cache. Thread: any.

    url: "http://host:port"; None: `ctrl`, `scope` and `service_id` find it. peer_agent: writes and reads
    the bytes; None: connect_to_server() makes one. timeout: seconds for each request.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        peer_agent: Optional[PeerAgent] = None,
        ctrl: Optional[str] = None,
        scope: Optional[str] = None,
        service_id: Optional[str] = "cache:0",
        timeout: float = 5.0,
    ) -> None:
        if url is None:
            if ctrl is None:
                raise InvalidArgument("CacheClient takes a url or a ctrl")
            url = discover_cache_url(ctrl=ctrl, scope=scope, service_id=service_id)
        self.url = url.rstrip("/")
        self.peer_agent = peer_agent
        self.timeout = timeout
        self._memory: Optional[CacheMemory] = None

    def server_peer_agent(self) -> Dict[str, Any]:
        """Returns what the cache says about its agent."""
        return self._ask("/peer-agent")

    def connect_to_server(
        self,
        *,
        peer_agent: Optional[PeerAgent] = None,
        alias: Optional[str] = None,
        ctrl: Optional[str] = None,
        scope: Optional[str] = None,
        local_device: Optional[str] = None,
        peer_device: Optional[str] = None,
        ib_port: int = 1,
        qp_num: int = 1,
        timeout_sec: float = 60.0,
    ) -> Dict[str, Any]:
        """Connects an agent to the cache, a new one if there is none: client.peer_agent. Returns
        server_peer_agent()."""
        info = self.server_peer_agent()
        agent = peer_agent or self.peer_agent
        if agent is None:
            url = ctrl or info.get("nanoctrl_url")
            if not url:
                raise CacheError("the cache has no nanoctrl: start it with --ctrl, or give peer_agent")
            agent = PeerAgent(url, alias, local_device, scope or info.get("scope"), ib_port=ib_port, qp_num=qp_num)
        self.peer_agent = agent
        server = str(info["peer_agent_id"])
        agent.connect_to(server, local_device, peer_device, ib_port, qp_num).wait(timeout_sec)
        self._memory = agent._cache_memory(server, str(info["cache_mr_name"]))
        return info

    def store(
        self, assignments: List[Any], *, peer_agent: Optional[PeerAgent] = None, peer_agent_id: Optional[str] = None
    ) -> Dict[str, Any]:
        """Plans a version: its manifest says at which offsets of the cache the agent writes the bytes.
        Only its length is taken of each assignment, and where in the own memory readers want it."""
        owner = peer_agent_id or getattr(peer_agent or self.peer_agent, "alias", None)
        if not owner:
            raise InvalidArgument("peer_agent_id is missing, and there is no peer_agent")
        body = {"peer_agent_id": owner, "assignments": [types.assignment_to_json(each) for each in assignments]}
        if self._memory is None:
            return self._ask("/store", body)  # refused: without a connection nothing can be written
        manifest = self._ask("/store", {**body, "plan": True})
        self._memory.plan(manifest)
        return manifest

    def query(self, peer_agent_id: str, version: int) -> Dict[str, Any]:
        """Returns the manifest of a version whose bytes are all written."""
        return self._ask("/query", {"peer_agent_id": peer_agent_id, "version": int(version)})

    load = query

    def delete(self, peer_agent_id: str, version: int) -> bool:
        """Removes a version. Returns whether it was there."""
        if self._memory is not None:
            self._memory.forget(int(version))
        return bool(self._ask("/delete", {"peer_agent_id": peer_agent_id, "version": int(version)})["deleted"])

    def stats(self) -> Dict[str, int]:
        return self._ask("/stats")

    def _ask(self, path: str, body: Any = None) -> Dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        token = os.environ.get("SLIME_COMPAT_TOKEN", "")
        if token and _keeps_secrets(self.url):
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(self.url + path, data, headers), timeout=self.timeout) as answer:
                text = answer.read(_ANSWER_MOST + 1)
        except urllib.error.HTTPError as error:
            raise CacheError(f"{path} failed with HTTP {error.code}: {_told(error)}", error.code) from None
        except (OSError, http.client.HTTPException) as error:
            raise CacheError(f"{self.url}{path}: {error!r}") from None
        try:
            decoded: Any = json.loads(text) if len(text) <= _ANSWER_MOST else None
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise CacheError(f"{self.url}{path} answered {len(text)} bytes that are no JSON object") from None
        return decoded
