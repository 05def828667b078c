"""The public methods of the classes that both languages have: the same names, but for the exceptions here."""

import inspect
import operator
import pathlib
import sys

import pytest

import slime
import slime.kv

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytest.importorskip("tree_sitter_cpp", reason="tree_sitter, which parses the headers, is not installed")
sys.path.insert(0, str(ROOT / "scripts"))
import shape  # noqa: E402

# C++ class: its header. The Python class has the same name, but for a service: see Proxy.
HEADERS = {
    "CacheClient": "cache/client.h",
    "Endpoint": "agent/endpoint.h",
    "Future": "base/future.h",
    "MemoryRegion": "agent/peer_agent.h",
    "Peer": "agent/peer_agent.h",
    "PeerAgent": "agent/peer_agent.h",
    "PreparedBatch": "agent/prepared_batch.h",
    "RawPeer": "agent/peer_agent.h",
    "ServiceProxy": "agent/service_proxy.h",
    "Stub": "agent/stub.h",
    "kv.Broadcast": "kv/broadcast.h",
    "kv.Cache": "kv/cache.h",
    "kv.Gather": "kv/gather.h",
    "kv.Move": "kv/move.h",
    "kv.Remote": "kv/remote.h",
    "kv.Replica": "kv/replica.h",
    "kv.Shards": "kv/shards.h",
}

# The methods of a service are attributes of Python's Proxy, which has no other names: a service may
# have a method of any name. What C++ has as methods are arguments of peer.proxy() and
# agent.proxy().
PROXIES = {"ServiceProxy", "Stub"}

ONLY_CPP = {
    "CacheClient": {"create": "the constructor"},
    "Endpoint": {"create": "the constructor", "agent": "an attribute"},
    "Future": {
        "driver": "for futures that C++ code derives",
        "map": "for futures that C++ code derives",
        "on_done": "add_done_callback, as in concurrent.futures",
        "then": "await",
        "ready": "asyncio makes such futures",
        "valid": "each Python future is valid",
        "wait": "result(), as in concurrent.futures",
    },
    "MemoryRegion": {
        "bytes": "memoryview(region)",
        "data": "address",
        "state": "internal",
        "valid": "closed",
    },
    "Peer": {
        "lookup_region": "region() waits without blocking other threads",
        "recv_delivery": "recv() returns the message if its future is dropped",
        "with_idle_timeout": "idle_timeout= of stream()",
        "with_interceptor": "agent.add_client_interceptor()",
    },
    "PeerAgent": {
        "driver": "for queues that C++ handlers fill",
        "wake": "stop_serving()",
        "add_interceptor": "add_client_interceptor() and add_server_interceptor(): Python has no overloads",
        "on_connect": "accept(), with accepts=True",
        "on_disconnect": "its handlers run on the loop, which never runs Python",
        "on_imm_queued": "on_imm() queues",
        "start": "the constructor",
    },
    "PreparedBatch": {
        "done_now": "post() returns a finished future for such a batch",
        "size": "len(batch)",
        "valid": "each Python batch is valid",
    },
    "RawPeer": {"stream_attached": "Python's streams have no attachments beside their arguments"},
    "kv.Broadcast": {"name": "the argument of the constructor", "over": "the constructor"},
    "kv.Cache": {
        "allocate": "the constructor without memory",
        "over": "the constructor with memory",
        "state": "internal",
    },
    "kv.Gather": {"connect": "the constructor"},
    "kv.Move": {"failed": "internal"},
    "kv.Remote": {"peer": "the argument of connect()"},
    "kv.Replica": {"over": "the constructor"},
    "kv.Shards": {"over": "the constructor"},
}
ONLY_PYTHON = {
    "CacheClient": {},
    "Endpoint": {},
    "Future": {
        "add_done_callback": "on_done() and then()",
        "agent": "keeps the agent alive",
        "exception": "wait() returns a Result",
        "result": "wait()",
    },
    "MemoryRegion": {
        "address": "data()",
        "closed": "valid()",
        "readonly": "C++ registers memory that may be written only",
    },
    "Peer": {
        "agent": "keeps the agent alive",
        "async_proxy": "proxy() for asyncio",
        "async_stream": "stream() for asyncio",
        "health": "call<std::string>(\"slime.Health\", \"check\", service)",
    },
    "PeerAgent": {
        "add_client_interceptor": "add_interceptor()",
        "add_server_interceptor": "add_interceptor()",
        "async_proxy": "proxy() for asyncio",
        "closed": "info().state",
        "empty": "NumPy arrays",
        "forked": "info().state",
        "progress": "C++ code knows its own options",
        "register_address": "register_memory(), which takes an address",
        "serve_forever": "C++ programs wait as they like, or call poll()",
        "stop_serving": "wake()",
    },
    "PreparedBatch": {},
    "RawPeer": {},
    "kv.Broadcast": {"update": "begin_update() and publish()"},
    "kv.Cache": {},
    "kv.Gather": {"start_read": "read() of C++; that of Python waits"},
    "kv.Move": {},
    "kv.Remote": {
        "cache": "the argument of connect()",
        "start_read": "read_blocks() of C++; that of Python waits",
        "start_write": "write_blocks() of C++; that of Python waits",
    },
    "kv.Replica": {"start_fetch": "fetch() of C++; that of Python waits"},
    "kv.Shards": {},
}


def public_methods(body):
    """Yields the names of the public methods in the body of a class."""
    public = False
    for node in body.children:
        if node.type == "access_specifier":
            public = shape.text_of(node) == "public"
        inner = node
        while inner.type == "template_declaration":
            inner = inner.children[-1]
        if not public or inner.type not in ("function_definition", "field_declaration", "declaration"):
            continue
        for declarator in shape.declarators(inner):
            if shape.declares_function(declarator):
                yield name_of(declarator)


def name_of(declarator):
    while declarator.type not in shape.FUNCTION_NAMES:
        following = declarator.child_by_field_name("declarator")
        declarator = following if following is not None else declarator.named_children[0]
    return shape.text_of(declarator)


def classes(node):
    for child in node.children:
        if child.type in ("class_specifier", "struct_specifier") and child.child_by_field_name("body") is not None:
            yield shape.text_of(child.child_by_field_name("name")), child.child_by_field_name("body")
        yield from classes(child)


def cpp_names(name):
    tree = shape.cpp_tree(shape.cpp_parser(), (ROOT / HEADERS[name]).read_bytes())
    name = name.rpartition(".")[2]
    bodies = [body for found, body in classes(tree) if found == name]
    assert len(bodies) == 1, f"{name} is defined {len(bodies)} times"
    return {each for each in public_methods(bodies[0]) if each != name and each.isidentifier()}


def python_names(cls):
    return {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(set(HEADERS) - PROXIES))
def test_both_languages_have_the_same_methods(name):
    cpp, python = cpp_names(name), python_names(operator.attrgetter(name)(slime))
    assert cpp - python == set(ONLY_CPP[name])
    assert python - cpp == set(ONLY_PYTHON[name])


def test_a_proxy_has_no_names_of_its_own():
    assert python_names(slime.Proxy) == python_names(slime.AsyncProxy) == set()


@pytest.mark.parametrize("name", sorted(PROXIES))
def test_the_clients_of_a_service_have_names_that_a_peer_has(name):
    assert cpp_names(name) - cpp_names("Peer") <= {"describe", "idempotent", "service", "with_key"}


def test_raw_calls_have_one_set_of_names():
    sets = []
    for name, header in (("RawPeer", "Peer"), ("RawServiceProxy", "ServiceProxy"), ("RawStub", "Stub")):
        HEADERS.setdefault(name, HEADERS[header])
        sets.append(cpp_names(name))
    assert sets[0] == sets[1] == sets[2]
