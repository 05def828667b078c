#!/usr/bin/env python3
"""Uses nanoctrl through the HTTP routes that DLSlime's NanoCtrl published, with nothing but the standard library.

    nanoctrl start --port 4479
    nanoctrl_http.py http://127.0.0.1:4479          a token, if one is needed, is read from SLIME_CTRL_TOKEN

Registers a service and two agents in a scope of its own, checks every answer, and removes them again. Ends with
"every route answered as published", or with what did not.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request


class NanoCtrl:
    """Sends requests to nanoctrl's routes, each with a JSON object, and returns the JSON of the
    answers."""

    def __init__(self, url: str, scope: str | None = None, token: str = "") -> None:
        self.url = url.rstrip("/")
        self.scope = scope
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        # Ignores proxies of the environment.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(self, path: str, **body):
        """Sends `body` as JSON to the route `path` and returns the answer. Raises HTTPError if
        nanoctrl refuses the request."""
        if self.scope is not None:
            body.setdefault("scope", self.scope)
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), self.headers)
        with self.opener.open(request, timeout=10) as reply:
            return json.load(reply)

    def refusal(self, path: str, **body) -> tuple[int, dict]:
        """Sends a request that nanoctrl must refuse. Returns the HTTP status and the JSON of the
        refusal."""
        try:
            answer = self.post(path, **body)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        raise AssertionError(f"{path} was not refused: {answer}")

    def root(self) -> str:
        with self.opener.open(f"{self.url}/", timeout=10) as reply:
            return reply.read().decode()


def check(what: str, found, expected) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r} instead of {expected!r}")


def services(ctrl: NanoCtrl, elsewhere: NanoCtrl) -> None:
    endpoint = {"host": "127.0.0.1", "port": 6001, "protocol": "zmq"}
    metadata = {"world_size": 8, "peer_addrs": ["127.0.0.1:5000"]}
    entity = {"entity_type": "service", "entity_id": "prefill-0"}
    answer = ctrl.post("register", **entity, kind="prefill", endpoint=endpoint, metadata=metadata)
    check("register", answer["status"], "ok")
    answer = ctrl.post("get_entity_info", **entity)
    check("get_entity_info", answer["status"], "ok")
    info = answer["entity_info"]
    check("entity_id", (info["entity_type"], info["entity_id"], info["id"]), ("service", "prefill-0", "prefill-0"))
    check("kind", info["kind"], "prefill")
    check("endpoint", info["endpoint"], endpoint)
    check("metadata", info["metadata"], metadata)
    check("heartbeat", ctrl.post("heartbeat", **entity)["status"], "ok")
    check("registered again", ctrl.post("register", **entity, kind="prefill", endpoint=endpoint)["status"], "ok")

    ctrl.post("register", entity_id="decode-0", kind="decode", metadata={})
    listed = ctrl.post("list_entities", entity_type="service")["entities"]
    check("list_entities", [entity["id"] for entity in listed], ["decode-0", "prefill-0"])
    listed = ctrl.post("list_entities", entity_type="service", kind="decode")["entities"]
    check("list_entities of a kind", [entity["id"] for entity in listed], ["decode-0"])
    check("list_entities of a type", ctrl.post("list_entities", entity_type="engine")["entities"], [])
    # A client of another scope sees no entity of this scope.
    check("another scope", elsewhere.post("list_entities")["entities"], [])
    check("another scope", elsewhere.post("get_entity_info", **entity)["status"], "not_found")
    check("another scope", elsewhere.post("heartbeat", **entity)["status"], "not_found")

    for name in ("prefill-0", "decode-0"):
        check("unregister", ctrl.post("unregister", entity_type="service", entity_id=name)["status"], "ok")
    check("heartbeat of nobody", ctrl.post("heartbeat", **entity)["status"], "not_found")
    answer = ctrl.post("get_entity_info", **entity)
    check("nobody", (answer["status"], answer["entity_info"]), ("not_found", None))


def agents(ctrl: NanoCtrl, elsewhere: NanoCtrl) -> None:
    resource = {"schema_version": 1, "nics": [{"name": "mlx5_0", "ports": [{"port": 1, "link_type": "RoCE"}]}]}
    described = {"device": "mlx5_0", "ib_port": 1, "link_type": "RoCE", "address": "127.0.0.1"}
    answer = ctrl.post("start_peer_agent", alias="agent-a", resource=resource, **described)
    check("start_peer_agent", (answer["status"], answer["name"]), ("ok", "agent-a"))
    check("no Redis", answer["redis_address"], "")
    status, error = ctrl.refusal("start_peer_agent", alias="agent-a", **described)
    check("an alias that lives", (status, error["status"]), (409, "error"))
    other = ctrl.post("start_peer_agent", name_prefix="worker", **described)["name"]
    check("a name that nanoctrl chose", other.startswith("worker-"), True)
    check("heartbeat", ctrl.post("heartbeat", entity_type="agent", entity_id="agent-a")["status"], "ok")

    region = {"addr": 0x7F0000000000, "length": 1 << 30, "rkey": 0x1234, "lkey": 0}
    check("register_mr", ctrl.post("register_mr", agent_name="agent-a", mr_name="kv", **region)["status"], "ok")
    check("get_mr_info", ctrl.post("get_mr_info", src=other, dst="agent-a", mr_name="kv")["mr_info"], region)
    check("no such region", ctrl.post("get_mr_info", src=other, dst="agent-a", mr_name="x")["mr_info"], None)
    topology = {"target_peers": [other], "symmetric": True}
    check("desired_topology", ctrl.post("v1/desired_topology/agent-a", **topology)["status"], "ok")

    found = {agent["name"]: agent for agent in ctrl.post("query")}
    check("query", sorted(found), sorted(["agent-a", other]))
    expected = {"name": "agent-a", "resource": resource, "memory_keys": ["kv"], **described}
    check("an agent", found["agent-a"], expected)
    check("another scope", elsewhere.post("query"), [])
    check("another scope", elsewhere.post("get_mr_info", src="x", dst="agent-a", mr_name="kv")["mr_info"], None)

    for name in ("agent-a", other):
        check("cleanup", ctrl.post("cleanup", agent_name=name)["status"], "ok")
    check("query after cleanup", ctrl.post("query"), [])


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    token = os.environ.get("SLIME_CTRL_TOKEN", "")
    scope = f"nanoctrl-http-{os.getpid()}"
    ctrl = NanoCtrl(sys.argv[1], scope, token)
    elsewhere = NanoCtrl(sys.argv[1], f"{scope}-b", token)
    try:
        check("GET /", "running" in ctrl.root(), True)
        check("get_redis_address", ctrl.post("get_redis_address")["redis_address"], "")
        services(ctrl, elsewhere)
        agents(ctrl, elsewhere)
        status, error = ctrl.refusal("register", kind="no entity_id")
        check("a bad request", (status, error["status"]), (400, "error"))
    except urllib.error.HTTPError as error:
        print(f"{error.url}: {error.code}: {error.read().decode()}", file=sys.stderr)
        return 1
    except (AssertionError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("every route answered as published")
    return 0


if __name__ == "__main__":
    sys.exit(main())
