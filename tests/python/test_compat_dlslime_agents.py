"""slime.compat.dlslime: the code of the users of DLSlime's PeerAgent on Slime."""

import signal
import threading

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE, PROVIDERS, wait_until

SOON = 10 * PATIENCE

pytestmark = pytest.mark.usefixtures("compat_settings")


@pytest.fixture
def dlslime():
    return slime.compat.install("dlslime")


@pytest.fixture(params=PROVIDERS)
def ends(dlslime, nanoctrl, monkeypatch, request):
    """Two agents, "a" connected to "b", each with 4 KiB called "kv"."""
    monkeypatch.setenv("SLIME_PROVIDER", request.param)
    with dlslime.start_peer_agent(nanoctrl_url=nanoctrl, alias="a") as a, dlslime.PeerAgent(nanoctrl, "b") as b:
        local, remote = np.zeros(4096, np.uint8), np.arange(4096).astype(np.uint8)
        a.register_memory_region("kv", local.ctypes.data, 0, 4096)
        b.register_memory_region("kv", remote.ctypes.data, 0, 4096)
        a.connect_to("b").wait(SOON)
        b.wait_for_peers(["a"], timeout_sec=SOON)
        yield a, local, b, remote


def test_an_example_of_a_declared_topology_and_a_named_read(dlslime, nanoctrl):
    from dlslime import start_peer_agent

    initiator_agent = start_peer_agent(server_url=nanoctrl)
    target_agent = start_peer_agent(server_url=nanoctrl)
    initiator_name, target_name = initiator_agent.alias, target_agent.alias
    assert {initiator_name, target_name} <= set(initiator_agent.query())
    for alias in (initiator_name, target_name):
        assert initiator_agent.query_resource(alias)["nics"]
    initiator_agent.set_desired_topology(target_name, ib_port=1, qp_num=1)
    initiator_agent.wait_for_peers([target_name])
    target_agent.wait_for_peers([initiator_name])
    local_tensor, remote_tensor = np.zeros(16, np.uint8), np.ones(16, np.uint8)
    initiator_agent.register_memory_region("kv", local_tensor.ctypes.data, 0, 16)
    target_agent.register_memory_region("kv", remote_tensor.ctypes.data, 0, 16)
    slot = initiator_agent.read(target_name, [("kv", 8, 0, 8)])
    slot.wait()
    assert local_tensor.tolist() == [0] * 8 + [1] * 8
    initiator_agent.shutdown()
    target_agent.shutdown()


def test_named_items_have_the_own_offset_first_and_numbers_the_peers(ends):
    a, local, b, remote = ends
    a.read("b", [("kv", 200, 100, 50), ("kv", "kv", 1000, 2000, 1)]).wait()
    assert (local[200:250] == remote[100:150]).all() and local[1000] == remote[2000]
    local[:] = 0
    a.read("b", [(a.get_handle("kv"), a.get_handle("kv", "b"), 100, 200, 50)]).wait()
    assert (local[200:250] == remote[100:150]).all() and local[:200].sum() == 0
    local[:] = 9
    before = remote.copy()
    a.write("b", [("kv", 0, 300, 50)]).wait()
    before[300:350] = 9
    assert (remote == before).all()
    for wrong in (("kv", 1, 2), ("kv", 3, 0, 0, 1), (1, 0, 0, 1), (1.5, 2.5, 0, 0, 1)):
        with pytest.raises(slime.InvalidArgument):
            a.read("b", [wrong])


def test_messages_and_notifications_go_both_ways(ends):
    a, local, b, remote = ends
    local[:10] = 7
    sent = a.send("b", (local.ctypes.data, 0, 10))
    b.recv("a", (remote.ctypes.data, 5, 10)).wait()
    sent.wait()
    assert (remote[5:15] == 7).all()
    for sender, receiver in ((a, b), (b, a)):
        received = receiver.imm_recv(sender.alias)
        sender.write_with_imm(receiver.alias, [("kv", 0, 0, 64), ("kv", 64, 64, 64)], 77).wait()
        assert received.wait(SOON) == 0 and received.imm_data() == 77
    with pytest.raises(slime.DeadlineExceeded):
        b.imm_recv("a").wait(0.01)


def test_notifications_that_came_before_the_end_are_taken_by_a_later_imm_recv(ends):
    a, _, b, _ = ends
    for imm in (1, 2):
        a.write_with_imm("b", [("kv", 0, 0, 64)], imm).wait()
    first = b.imm_recv("a")
    assert first.wait(SOON) == 0 and first.imm_data() == 1
    a.query_connection("b").endpoint.disconnect()
    wait_until(lambda: b.query_connection("a").state == "failed")
    later = b.imm_recv("a")
    assert later.wait(SOON) == 0 and later.imm_data() == 2
    with pytest.raises(slime.Unavailable):
        b.imm_recv("a").wait(SOON)


def test_notifications_that_are_never_taken_hold_no_thread_after_the_end(dlslime, nanoctrl, monkeypatch):
    monkeypatch.setattr("slime.compat.dlslime._transfers._IMMS_MOST", 2)
    before = {each for each in threading.enumerate() if each.name == "slime-imm"}
    with dlslime.PeerAgent(nanoctrl, "b") as b, dlslime.PeerAgent(nanoctrl, "a") as a:
        memory = np.zeros(64, np.uint8)
        for each in (a, b):
            each.register_memory_region("kv", memory.ctypes.data, 0, 64)
        a.connect_to("b").wait(SOON)
        b.wait_for_peers(["a"], timeout_sec=SOON)
        for imm in range(8):
            a.write_with_imm("b", [("kv", 0, 0, 64)], imm).wait()
    wait_until(lambda: not any(each.name == "slime-imm" for each in set(threading.enumerate()) - before))


def test_what_agents_tell_of_each_other(ends):
    a, _, b, remote = ends
    assert {"a", "b"} <= set(a.list_agents()) and a.query()["b"]["address"] == b._agent.address
    wait_until(lambda: a.list_mem_keys("b") == ["kv"])
    assert b.list_mem_keys() == ["kv"]
    assert a.get_mr_info("b", "kv")["length"] == 4096 and a.get_mr_info("b", "nosuch") is None
    assert a.get_mr_info("a", "kv")["handle"] == a.get_handle("kv")
    assert a.get_resource("b")["host"]["hostname"] == a.get_resource()["host"]["hostname"] != ""
    assert a.get_resource("nosuch") is None
    for nothing in (lambda: a.get_remote_handle("b", "nosuch"), lambda: a.get_handle("nosuch")):
        with pytest.raises(slime.NotFound) as raised:
            nothing()
        assert isinstance(raised.value, RuntimeError)


def test_memory_that_was_taken_back_is_reached_no_longer(ends):
    a, local, b, remote = ends
    a.read("b", [("kv", 0, 0, 8)]).wait()
    assert b.unregister_memory_region("kv")
    with pytest.raises(slime.Error):
        a.read("b", [("kv", 0, 0, 64)]).wait()
    assert not local[8:].any()
    assert not b.unregister_memory_region("kv")


def test_a_connection_tells_its_state_and_stays_ended_until_connect_to(ends):
    a, local, b, remote = ends
    connection = a.query_connection("b")
    assert connection.is_connected() and connection.state == "connected"
    assert a.get_connections() == {"b": {connection.conn_id: connection}}
    assert connection.peer_alias == "b" and connection.conn_id.startswith("a:") and "->b:" in connection.conn_id
    assert a.connect_to("b") is connection
    connection.endpoint.disconnect()
    wait_until(lambda: b.query_connection("a").state == "failed")
    assert not connection.is_connected()
    for operation in (
        lambda: a.read("b", [("kv", 0, 0, 8)]).wait(),
        lambda: a.send("b", (local.ctypes.data, 0, 8)).wait(),
        lambda: b.imm_recv("a").wait(SOON),
        lambda: connection.wait(SOON),
    ):
        with pytest.raises(slime.Unavailable):
            operation()
    a.connect_to("b").wait(SOON)
    a.read("b", [("kv", 0, 0, 4096)]).wait()
    assert (local == remote).all()
    wait_until(lambda: b.query_connection("a").is_connected())


def test_connect_to_waits_for_a_peer_that_comes_later(dlslime, nanoctrl):
    with dlslime.PeerAgent(nanoctrl, "early") as early:
        connection = early.connect_to("late")
        assert connection.state == "connecting"
        with pytest.raises(slime.DeadlineExceeded):
            connection.wait(0.01)
        with dlslime.PeerAgent(nanoctrl, "late"):
            assert connection.wait(SOON).is_connected()


def test_connect_to_a_peer_that_never_comes_fails(dlslime, nanoctrl, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "1")
    with dlslime.PeerAgent(nanoctrl, "a") as a:
        connection = a.connect_to("never")
        with pytest.raises(slime.Error, match="never"):
            connection.wait(SOON)
        assert connection.state == "failed" and isinstance(connection.error, slime.Error)
        for kind in (slime.Unavailable, RuntimeError):
            with pytest.raises(kind, match="connect_to"):
                a.read("other", [])


def test_a_registry_that_is_not_there_is_named_with_the_port_of_slimes_own(dlslime):
    with pytest.raises(slime.Unavailable, match="127.0.0.1:4479"):
        dlslime.PeerAgent(nanoctrl_url="http://127.0.0.1:3000")


def test_wrong_arguments_raise(dlslime, nanoctrl, ends):
    a, local, _, _ = ends
    for wrong in (
        lambda: dlslime.PeerAgent(nanoctrl, device="nosuch0"),
        lambda: dlslime.PeerAgent(nanoctrl, link_type="Token Ring"),
        lambda: dlslime.PeerAgent(nanoctrl, "a"),
        lambda: a.connect_to("a"),
        lambda: a.connect_to("b", ib_port=0),
        lambda: a.read("b", [("nosuch", 0, 0, 1)]),
        lambda: a.read("b", [("kv", 0, 4090, 10)]).wait(),
        lambda: a.read("b", [("kv", 4090, 0, 10)]).wait(),
        lambda: a.register_memory_region("kv", local.ctypes.data, 0, 8),
    ):
        with pytest.raises(slime.Error):
            wrong()
    assert not local.any()


TARGET = """
    import sys
    import numpy as np
    from dlslime import PeerAgent
    agent = PeerAgent(sys.argv[1], alias="target")
    memory = np.full(1 << 20, 5, np.uint8)
    agent.register_memory_region("kv", memory.ctypes.data, 0, memory.nbytes)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("what", ["read", "write", "recv", "imm_recv"])
def test_operations_of_a_peer_that_was_killed_or_stopped_fail(
    dlslime, nanoctrl, start_compat, monkeypatch, what, provider, number
):
    monkeypatch.setenv("SLIME_PROVIDER", provider)
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    target = start_compat("dlslime", TARGET, nanoctrl)
    target.line()
    memory = np.zeros(1 << 20, np.uint8)
    with dlslime.PeerAgent(nanoctrl, "initiator") as agent:
        agent.register_memory_region("kv", memory.ctypes.data, 0, memory.nbytes)
        agent.connect_to("target").wait(SOON)
        agent.read("target", [("kv", 0, 0, 8)]).wait()
        assert memory.sum() == 5 * 8
        target.signal(number)
        if number == signal.SIGKILL:
            target.process.wait()
            wait_until(lambda: not agent.query_connection("target").is_connected())
        elif provider != "tcp" and what in ("read", "write"):
            # Shared memory is read without the other process.
            agent.read("target", [("kv", 0, 0, memory.nbytes)]).wait()
            assert (memory == 5).all()
            return
        with pytest.raises(slime.Error):
            if what in ("read", "write"):
                getattr(agent, what)("target", [("kv", 0, 0, memory.nbytes)]).wait()
            elif what == "recv":
                agent.recv("target", (memory.ctypes.data, 0, 8)).wait()
            else:
                agent.imm_recv("target").wait()
