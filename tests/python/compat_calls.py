"""The blocking calls of slime.compat, each for a client of its own, and the peers that they need.

compat_calls.py peer NAME [NANOCTRL]: a peer. Prints where it is, and stays until stdin ends.
compat_calls.py callers NAME WHERE: a process for each call, with a client. Each prints "ready CALL
PID". After a line of stdin each prints "calling CALL", and calls. The end of each is "ended CALL
STATUS", where a call that has returned is the status RETURNED.
"""

import asyncio
import ctypes
import importlib
import itertools
import os
import signal
import sys
import threading
from types import SimpleNamespace

import numpy as np

import slime.compat

RETURNED = 3
_numbers = itertools.count()


def _memory():
    return np.zeros(1 << 16, np.uint8)


# ---- uccl


def _uccl_peer():
    from uccl import p2p

    endpoint, memory = p2p.Endpoint(0), _memory()
    mr_id = endpoint.reg(memory.ctypes.data, memory.nbytes)[1]
    itself = endpoint.connect(endpoint.get_metadata())[1]
    item = endpoint.advertise(itself, mr_id, memory.ctypes.data, memory.nbytes)[1]
    return f"{endpoint.get_metadata().hex()} {bytes(item).hex()}", endpoint, memory


def _uccl_client(where):
    from uccl import p2p

    metadata, item = map(bytes.fromhex, where.split())
    out = SimpleNamespace(endpoint=p2p.Endpoint(0), memory=_memory(), metadata=metadata, item=item)
    done, out.connection = out.endpoint.connect(metadata)
    assert done
    out.range = out.endpoint.reg(out.memory.ctypes.data, 1 << 16)[1], out.memory.ctypes.data, 1 << 16
    assert out.endpoint.read(out.connection, *out.range, item)  # later calls know the peer's memory
    return out


def _uccl_poll(c, started):
    while started[0] and not c.endpoint.poll_async(started[1])[1]:
        threading.Event().wait(0.01)


def _lists(*one):
    return [[each] for each in one]


UCCL = {
    "connect": lambda c: c.endpoint.connect(c.metadata),
    "send": lambda c: c.endpoint.send(c.connection, *c.range),
    "recv": lambda c: c.endpoint.recv(c.connection, *c.range),
    "sendv": lambda c: c.endpoint.sendv(c.connection, *_lists(*c.range), 1),
    "recvv": lambda c: c.endpoint.recvv(c.connection, *_lists(*c.range), 1),
    "read": lambda c: c.endpoint.read(c.connection, *c.range, c.item),
    "write": lambda c: c.endpoint.write(c.connection, *c.range, c.item),
    "readv": lambda c: c.endpoint.readv(c.connection, *_lists(*c.range, c.item), 1),
    "writev": lambda c: c.endpoint.writev(c.connection, *_lists(*c.range, c.item), 1),
    "send_async": lambda c: _uccl_poll(c, c.endpoint.send_async(c.connection, *c.range)),
    "recv_async": lambda c: _uccl_poll(c, c.endpoint.recv_async(c.connection, *c.range)),
    "read_async": lambda c: _uccl_poll(c, c.endpoint.read_async(c.connection, *c.range, c.item)),
    "write_async": lambda c: _uccl_poll(c, c.endpoint.write_async(c.connection, *c.range, c.item)),
}

# ---- kvtrans_engine


def _kvtrans_peer():
    from kvtrans_engine import Engine

    engine = Engine("lo")
    return str(engine.port), engine


def _kvtrans_client(where):
    from kvtrans_engine import Engine

    out = SimpleNamespace(engine=Engine("lo"), port=int(where), data=bytes(1 << 16))
    done, connection = out.engine.connect("127.0.0.1", out.port)
    assert done
    out.kv = out.engine.reg_kv(connection, out.data)[1]
    return out


KVTRANS = {
    "connect": lambda c: c.engine.connect("127.0.0.1", c.port),
    "send_kv": lambda c: c.engine.send_kv(c.kv, c.data),
    "recv_kv": lambda c: c.engine.recv_kv(c.kv, len(c.data)),
}

# ---- rdma_comm


def _rdma_comm(role, port):
    from rdma_comm import RDMACommunicator

    keys, values = _memory(), _memory()
    return RDMACommunicator(role, 0, port, [keys.ctypes.data], [values.ctypes.data], 16, 4096), keys, values


def _rdma_comm_peer():
    made = _rdma_comm("decode", "0")
    return made[0]._host.agent.address.rpartition(":")[2], made


def _rdma_comm_client(where):
    out = SimpleNamespace(made=_rdma_comm("prefill", "0"), late=_rdma_comm("prefill", "0"), port=where)
    out.communicator, out.fresh = out.made[0], out.late[0]
    assert out.communicator.connect("127.0.0.1", where)
    assert out.communicator.write_cache("127.0.0.1", where, [0], [0], 0) == 0
    return out


RDMA_COMM = {
    "connect": lambda c: c.fresh.connect("127.0.0.1", c.port),
    "write_cache": lambda c: c.communicator.write_cache("127.0.0.1", c.port, [3, 1], [9, 2], 0),
}

# ---- mooncake


def _mooncake_engine():
    from mooncake.engine import TransferEngine

    engine, memory = TransferEngine(), _memory()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.register_memory(memory.ctypes.data, memory.nbytes) == 0
    return engine, memory


def _mooncake_peer():
    engine, memory = _mooncake_engine()
    return f"{engine.get_rpc_port()} {memory.ctypes.data}", engine, memory


def _mooncake_client(where):
    port, address = map(int, where.split())
    engine, memory = _mooncake_engine()
    target = f"127.0.0.1:{port}"
    out = SimpleNamespace(engine=engine, memory=memory, target=target, late=_mooncake_engine())
    out.fresh = out.late[0]
    out.one = memory.ctypes.data, address, 1 << 16
    assert engine.transfer_sync_read(target, *out.one) == 0
    return out


def _mooncake_notify(c):
    from mooncake.engine import TransferNotify, TransferOpcode

    c.engine.transfer_sync(c.target, *c.one, TransferOpcode.WRITE, TransferNotify("name", "text"))


def _mooncake_check(c):
    batch = c.engine.transfer_submit_write(c.target, *c.one)
    while batch != -1 and c.engine.transfer_check_status(batch) == 0:
        threading.Event().wait(0.01)


MOONCAKE = {
    "connect": lambda c: c.fresh.get_first_buffer_address(c.target),
    "get_first_buffer_address": lambda c: c.engine.get_first_buffer_address(c.target),
    "transfer_sync_read": lambda c: c.engine.transfer_sync_read(c.target, *c.one),
    "transfer_sync_write": lambda c: c.engine.transfer_sync_write(c.target, *c.one),
    "transfer_sync": _mooncake_notify,
    "batch_transfer_sync_read": lambda c: c.engine.batch_transfer_sync_read(c.target, *_lists(*c.one)),
    "batch_transfer_sync_write": lambda c: c.engine.batch_transfer_sync_write(c.target, *_lists(*c.one)),
    "transfer_check_status": _mooncake_check,
    "get_batch_transfer_status": lambda c: c.engine.get_batch_transfer_status(
        [c.engine.batch_transfer_async_read(c.target, *_lists(*c.one))]
    ),
}

# ---- dlslime: endpoints


def _dlslime_endpoint():
    import dlslime

    endpoint, memory = dlslime.RDMAEndpoint(), _memory()
    endpoint.register_memory_region("buffer", memory.ctypes.data, memory.nbytes)
    return endpoint, memory


def _dlslime_peer():
    endpoint, memory = _dlslime_endpoint()
    return endpoint.local_endpoint_info, endpoint, memory


def _dlslime_client(where):
    endpoint, memory = _dlslime_endpoint()
    endpoint.connect(where)
    endpoint.read(_BATCH).wait()
    out = SimpleNamespace(endpoint=endpoint, memory=memory, info=where, range=(memory.ctypes.data, 0, 1 << 16))
    out.late = _dlslime_endpoint()
    out.fresh = out.late[0]
    return out


_BATCH = [("buffer", "buffer", 0, 0, 1 << 16)]
DLSLIME = {
    "connect": lambda c: c.fresh.connect(c.info),
    "read": lambda c: c.endpoint.read(_BATCH).wait(),
    "write": lambda c: c.endpoint.write(_BATCH).wait(),
    "write_with_imm": lambda c: c.endpoint.write_with_imm(_BATCH, 5).wait(),
    "imm_recv": lambda c: c.endpoint.imm_recv().wait(),
    "send": lambda c: c.endpoint.send(c.range).wait(),
    "recv": lambda c: c.endpoint.recv(c.range).wait(),
    "async_read_batch": lambda c: asyncio.run(c.endpoint.async_read_batch("buffer", [0], [0], 1 << 16)),
    "send_async": lambda c: asyncio.run(c.endpoint.send_async("buffer", 0, 1 << 16)),
    "recv_async": lambda c: asyncio.run(c.endpoint.recv_async("buffer", 0, 1 << 16)),
}

# ---- dlslime: agents and calls


class _Calc:
    """What the agents' peer serves."""


def _calc():
    from dlslime.rpc import method

    if not hasattr(_Calc, "add"):
        _Calc.add = method(lambda self, a, b: a + b)
    return _Calc


def _dlslime_agent(nanoctrl, alias):
    from dlslime import PeerAgent

    agent, memory = PeerAgent(nanoctrl, alias), _memory()
    agent.register_memory_region("kv", memory.ctypes.data, 0, memory.nbytes)
    return agent, memory


def _agents_peer(nanoctrl):
    from dlslime.rpc import serve

    agent, memory = _dlslime_agent(nanoctrl, "target")
    threading.Thread(target=serve, args=(agent, _calc()()), daemon=True).start()
    return nanoctrl, agent, memory


def _agents_client(where):
    from dlslime.rpc import proxy

    agent, memory = _dlslime_agent(where, f"client-{os.getpid()}-{next(_numbers)}")
    agent.connect_to("target").wait(30)
    calc = proxy(agent, "target", _calc())
    assert calc.add(1, 2).wait() == 3
    agent.read("target", _ITEMS).wait()
    out = SimpleNamespace(agent=agent, memory=memory, calc=calc, range=(memory.ctypes.data, 0, 1 << 16))
    out.late = _dlslime_agent(where, f"late-{os.getpid()}-{next(_numbers)}")
    out.fresh = out.late[0]
    return out


def _agents_proxy(c):
    from dlslime.rpc import proxy

    proxy(c.agent, "target", _calc())


def _agents_wait_all(c):
    from dlslime.rpc import wait_all

    wait_all([c.calc.add(1, 2), c.calc.add(3, 4)])


_ITEMS = [("kv", 0, 0, 1 << 16)]
AGENTS = {
    "connect_to": lambda c: c.fresh.connect_to("target").wait(),
    "read": lambda c: c.agent.read("target", _ITEMS).wait(),
    "write": lambda c: c.agent.write("target", _ITEMS).wait(),
    "write_with_imm": lambda c: c.agent.write_with_imm("target", _ITEMS, 5).wait(),
    "imm_recv": lambda c: c.agent.imm_recv("target").wait(),
    "send": lambda c: c.agent.send("target", c.range).wait(),
    "recv": lambda c: c.agent.recv("target", c.range).wait(),
    "get_mr_info": lambda c: c.agent.get_mr_info("target", "other"),
    "get_handle": lambda c: c.agent.get_handle("other", "target"),
    "call": lambda c: c.calc.add(1, 2).wait(),
    "proxy": _agents_proxy,
    "wait_all": _agents_wait_all,
}


def _serve(once):
    def call(c):
        rpc = importlib.import_module("dlslime.rpc")
        (rpc.serve_once if once else rpc.serve)(c.agent, _calc()())

    return call


# By name: the module, the peer, the client, the calls that end by their deadline, and those that
# only Ctrl-C ends.
SYSTEMS = {
    "uccl": ("uccl", _uccl_peer, _uccl_client, UCCL, {"accept": lambda c: c.endpoint.accept()}),
    "kvtrans_engine": (
        "kvtrans_engine", _kvtrans_peer, _kvtrans_client, KVTRANS, {"accept": lambda c: c.engine.accept()},
    ),
    "rdma_comm": ("rdma_comm", _rdma_comm_peer, _rdma_comm_client, RDMA_COMM, {}),
    "mooncake": ("mooncake", _mooncake_peer, _mooncake_client, MOONCAKE, {}),
    "dlslime": ("dlslime", _dlslime_peer, _dlslime_client, DLSLIME, {}),
    "agents": ("dlslime", _agents_peer, _agents_client, AGENTS, {"serve": _serve(False), "serve_once": _serve(True)}),
}
# Calls that wait for what the peer does by itself: they may be under way when it dies.
WAITS = ("recv", "recvv", "recv_async", "recv_kv", "imm_recv")


def client(name, where):
    slime.compat.install(SYSTEMS[name][0])
    return SYSTEMS[name][2](where)


def close(one):
    """Closes what client() made."""
    for each in vars(one).values():
        if hasattr(each, "close"):
            each.close()


def _say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # whole lines, of several processes


def _call_in_a_child(name, where, title, call, go):
    """Runs in a child of its own, to the end of the interpreter."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: if the test fails
    one = client(name, where)
    _say("ready", title, os.getpid())
    os.read(go, 1)
    _say("calling", title)
    call(one)
    sys.exit(RETURNED)


def _callers(name, where):
    calls = {**SYSTEMS[name][3], **SYSTEMS[name][4]}
    go, write_end = os.pipe()
    children = {}
    for title, call in calls.items():
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            _call_in_a_child(name, where, title, call, go)
        children[pid] = title
    sys.stdin.readline()
    os.close(write_end)
    while children:
        pid, status = os.wait()
        _say("ended", children.pop(pid), os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))


def main(role, name, *where):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    slime.compat.install(SYSTEMS[name][0])
    if role == "peer":
        kept = SYSTEMS[name][1](*where)
        _say(kept[0])
        sys.stdin.read()
    else:
        _callers(name, *where)


if __name__ == "__main__":
    main(*sys.argv[1:])
