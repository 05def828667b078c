"""NIXL's Python API over a backend. The tests pass with SLIME (shm, tcp) and with UCX.

Two agents in one process, as in NIXL's own tests; test_nixl_processes.py uses several processes. Run by
scripts/integrations.sh, with NIXL's packages and $NIXL_PLUGIN_DIR.
"""

import importlib
import random
import time

import numpy
import pytest

PACKAGES = ("nixl_cu12._api", "nixl_cu13._api", "nixl._api")
PATIENCE = 20  # seconds for one transfer, on a busy machine
SEED = 27


def nixl_api():
    for name in PACKAGES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("none of " + ", ".join(PACKAGES))


api = nixl_api()


@pytest.fixture(scope="module")
def backend(pytestconfig):
    return pytestconfig.getoption("--backend")


def new_agent(name, backend, **options):
    agent = api.nixl_agent(name, api.nixl_agent_config(backends=[], **options))
    agent.create_backend(backend)
    return agent


class Side:
    """An agent with registered memory."""

    def __init__(self, name, backend, size=1 << 20, **options):
        self.name = name
        self.agent = new_agent(name, backend, **options)
        self.memory = numpy.zeros(size, "uint8")
        self.base = self.memory.ctypes.data
        self.registered = self.agent.register_memory([(self.base, size, 0, "")], "DRAM")

    def blocks(self, offsets, length):
        return self.agent.get_xfer_descs([(self.base + at, length, 0) for at in offsets], "DRAM")


@pytest.fixture
def pair(backend):
    """Returns two sides with each other's metadata."""
    a, b = Side("a", backend, capture_telemetry=True), Side("b", backend)
    assert as_text(a.agent.add_remote_agent(b.agent.get_agent_metadata())) == "b"
    b.agent.add_remote_agent(a.agent.get_agent_metadata())
    return a, b


def as_text(name):
    return name.decode() if isinstance(name, bytes) else name


def wait(agent, handle, state):
    deadline = time.monotonic() + PATIENCE
    while state == "PROC":
        assert time.monotonic() < deadline, "the transfer did not end"
        state = agent.check_xfer_state(handle)
    return state


def run(agent, handle, notification=b""):
    return wait(agent, handle, agent.transfer(handle, notification))


def notifications(agent, count):
    deadline = time.monotonic() + PATIENCE
    out = {}
    while sum(map(len, out.values())) < count:
        assert time.monotonic() < deadline, f"{count} notifications did not come; so far {out}"
        for name, messages in agent.get_new_notifs().items():
            out.setdefault(as_text(name), []).extend(messages)
    return out


# ----------------------------------------------------------------------------------- initialisation


def test_the_plugin_is_there_with_its_memory_and_parameters(backend):
    agent = api.nixl_agent("solo", api.nixl_agent_config(backends=[]))
    assert backend in agent.get_plugin_list()
    assert "DRAM_SEG" in agent.get_plugin_mem_types(backend)
    assert isinstance(agent.get_plugin_params(backend), dict)


def test_a_backend_is_made_once(backend):
    agent = new_agent("solo", backend)
    assert "DRAM_SEG" in agent.get_backend_mem_types(backend)
    with pytest.raises(Exception, match="INVALID_PARAM"):
        agent.create_backend(backend)


def test_an_unknown_backend_is_refused():
    with pytest.raises(Exception, match="NOT_FOUND"):
        new_agent("solo", "NO_SUCH_BACKEND")


# ------------------------------------------------------------------------ registration and metadata


def test_memory_is_registered_and_deregistered_many_times(backend):
    side = Side("solo", backend)
    for _ in range(100):
        registered = side.agent.register_memory([(side.base + 4096, 8192, 0, ""), (side.base + 65536, 1, 0, "")], "DRAM")
        side.agent.deregister_memory(registered)


def test_what_was_not_registered_cannot_be_deregistered(backend):
    side = Side("solo", backend)
    other = side.agent.get_reg_descs([(side.base + 4096, 4096, 0, "")], "DRAM")
    with pytest.raises(Exception, match="NOT_FOUND"):
        side.agent.deregister_memory(other)


def test_metadata_that_is_none_is_refused(backend):
    side = Side("solo", backend)
    for garbage in (b"", b"garbage", side.agent.get_agent_metadata()[:-7]):
        with pytest.raises(Exception):
            side.agent.add_remote_agent(garbage)


def test_partial_metadata_brings_one_registration_and_then_another(backend):
    a, b = Side("a", backend), Side("b", backend, 65536)
    more = numpy.full(4096, 9, "uint8")
    second = b.agent.register_memory([(more.ctypes.data, 4096, 0, "")], "DRAM")
    a.agent.add_remote_agent(b.agent.get_partial_agent_metadata(b.registered, True, [backend]))
    read = a.agent.initialize_xfer("READ", a.blocks([0], 4096), b.blocks([0], 4096), "b")
    assert run(a.agent, read) == "DONE"
    there = b.agent.get_xfer_descs([(more.ctypes.data, 4096, 0)], "DRAM")
    with pytest.raises(Exception, match="NOT_FOUND|UNKNOWN"):
        a.agent.initialize_xfer("READ", a.blocks([0], 4096), there, "b")
    a.agent.add_remote_agent(b.agent.get_partial_agent_metadata(second, True, [backend]))
    read = a.agent.initialize_xfer("READ", a.blocks([0], 4096), there, "b")
    assert run(a.agent, read) == "DONE"
    assert (a.memory[:4096] == 9).all()


def test_a_removed_agent_is_unknown_until_its_metadata_comes_again(pair):
    a, b = pair
    a.agent.remove_remote_agent("b")
    with pytest.raises(Exception, match="NOT_FOUND"):
        a.agent.initialize_xfer("READ", a.blocks([0], 64), b.blocks([0], 64), "b")
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    b.memory[:64] = 5
    assert run(a.agent, a.agent.initialize_xfer("READ", a.blocks([0], 64), b.blocks([0], 64), "b")) == "DONE"
    assert (a.memory[:64] == 5).all()


# ---------------------------------------------------------------------------------------- transfers


@pytest.mark.parametrize("operation", ["READ", "WRITE"])
@pytest.mark.parametrize("length, count", [(1, 1), (4096, 1), (1 << 19, 1), (64, 1000), (1000, 200)])
def test_every_byte_is_moved_and_no_other(pair, operation, length, count):
    a, b = pair
    rng = random.Random(SEED)
    print("seed", SEED)
    size = len(a.memory)
    here = [i * length for i in rng.sample(range(size // length), count)]
    there = [i * length for i in rng.sample(range(size // length), count)]
    b.memory[:] = numpy.random.default_rng(SEED).integers(0, 256, size, "uint8")
    a.memory[:] = numpy.random.default_rng(SEED + 1).integers(0, 256, size, "uint8")
    expected_a, expected_b = a.memory.copy(), b.memory.copy()
    for at, other in zip(here, there):
        if operation == "READ":
            expected_a[at : at + length] = expected_b[other : other + length]
        else:
            expected_b[other : other + length] = expected_a[at : at + length]
    handle = a.agent.initialize_xfer(operation, a.blocks(here, length), b.blocks(there, length), "b")
    assert run(a.agent, handle) == "DONE"
    assert (a.memory == expected_a).all()
    assert (b.memory == expected_b).all()


def test_a_handle_is_posted_again_and_again(pair):
    a, b = pair
    handle = a.agent.initialize_xfer("READ", a.blocks([0], 4096), b.blocks([4096], 4096), "b")
    for value in range(1, 200):
        b.memory[4096:8192] = value
        assert run(a.agent, handle) == "DONE"
        assert (a.memory[:4096] == value).all()
    a.agent.release_xfer_handle(handle)


def test_prepared_lists_give_transfers_by_index(pair):
    a, b = pair
    b.memory[:] = numpy.arange(len(b.memory)) // 4096
    here = a.agent.prep_xfer_dlist("NIXL_INIT_AGENT", a.blocks(range(0, 1 << 20, 4096), 4096))
    there = a.agent.prep_xfer_dlist("b", b.blocks(range(0, 1 << 20, 4096), 4096))
    handle = a.agent.make_prepped_xfer("READ", here, [3, 9, 200], there, [100, 7, 200])
    assert run(a.agent, handle) == "DONE"
    assert [int(a.memory[i * 4096]) for i in (3, 9, 200, 4)] == [100, 7, 200, 0]


def test_an_agent_moves_bytes_of_its_own(backend):
    side = Side("solo", backend)
    side.memory[:4096] = 7
    handle = side.agent.initialize_xfer("WRITE", side.blocks([0], 4096), side.blocks([8192], 4096), "solo")
    assert run(side.agent, handle) == "DONE"
    assert (side.memory[8192:12288] == 7).all()


def test_descriptors_outside_of_what_was_registered_are_refused(pair):
    a, b = pair
    beyond = a.agent.get_xfer_descs([(b.base + len(b.memory) - 10, 11, 0)], "DRAM")
    with pytest.raises(Exception, match="NOT_FOUND|UNKNOWN|INVALID"):
        a.agent.initialize_xfer("READ", a.blocks([0], 11), beyond, "b")


# ------------------------------------------------------------------------------------ notifications


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
def test_a_notification_comes_after_the_bytes_of_its_transfer(pair, size):
    a, b = pair
    message = b"n" * size
    a.memory[:1024] = 33
    handle = a.agent.initialize_xfer("WRITE", a.blocks([0], 1024), b.blocks([0], 1024), "b", message)
    assert run(a.agent, handle, message) == "DONE"
    if size > 0:  # an empty message is not sent
        assert notifications(b.agent, 1) == {"a": [message]}
        assert (b.memory[:1024] == 33).all()


def test_notifications_of_their_own_come_in_order(pair):
    a, b = pair
    sent = [str(i).encode() for i in range(300)]
    for message in sent:
        a.agent.send_notif("b", message)
    assert notifications(b.agent, 300) == {"a": sent}
    b.agent.send_notif("a", b"back")
    assert notifications(a.agent, 1) == {"b": [b"back"]}


def test_an_unknown_agent_gets_no_notification(pair):
    with pytest.raises(Exception, match="NOT_FOUND"):
        pair[0].agent.send_notif("nobody", b"hello")


# -------------------------------------------------------------------------- telemetry and estimates


def test_telemetry_tells_the_bytes_and_descriptors_of_a_transfer(pair):
    a, b = pair
    handle = a.agent.initialize_xfer("READ", a.blocks([0, 8192], 4096), b.blocks([0, 8192], 4096), "b")
    assert run(a.agent, handle) == "DONE"
    told = a.agent.get_xfer_telemetry(handle)
    assert told.totalBytes == 8192
    assert told.descCount == 2


def test_the_cost_of_a_transfer_is_estimated(pair, backend):
    a, b = pair
    handle = a.agent.initialize_xfer("READ", a.blocks([0], 1 << 19), b.blocks([0], 1 << 19), "b")
    assert run(a.agent, handle) == "DONE"
    duration, margin, _ = a.agent.estimate_xfer_cost(handle)
    assert duration > 0 or backend == "UCX"  # UCX returns 0 without measurements
    assert margin >= 0
