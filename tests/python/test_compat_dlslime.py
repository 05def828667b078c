"""slime.compat.dlslime: the code of the users of DLSlime's endpoint on Slime."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE

SOON = 10 * PATIENCE


pytestmark = pytest.mark.usefixtures("compat_settings")


@pytest.fixture
def dlslime():
    return slime.compat.install("dlslime")


@pytest.fixture
def ends(dlslime):
    """An initiator and a target that are connected, each with 4 KiB called "buffer"."""
    with dlslime.RDMAEndpoint() as initiator, dlslime.RDMAEndpoint() as target:
        local, remote = np.zeros(4096, np.uint8), np.arange(4096).astype(np.uint8)
        initiator.register_memory_region("buffer", local.ctypes.data, 4096)
        target.register_memory_region("buffer", remote.ctypes.data, 0, 4096)
        target.connect(initiator.endpoint_info())
        initiator.connect(target.endpoint_info())
        yield initiator, local, target, remote


def test_batches_are_read_and_written_by_name_and_by_number(ends):
    initiator, local, target, remote = ends
    mine, theirs = (each.mr_info()["buffer"]["handle"] for each in (initiator, target))
    assert initiator.read([("buffer", "buffer", 100, 200, 50), (mine, theirs, 1000, 0, 1)]).wait() == 0
    assert (local[200:250] == remote[100:150]).all() and local[0] == remote[1000]
    assert local.sum() == remote[100:150].sum() + remote[1000]
    local[:] = 9
    before = remote.copy()
    future = initiator.write([("buffer", "buffer", 100, 200, 50)])
    assert future.wait() == 0 and future.done() and future.wait() == 0
    assert (remote[100:150] == 9).all()
    before[100:150] = 9
    assert (remote == before).all()


def test_numbers_as_names_and_memory_registered_after_the_info_was_read(dlslime):
    # lmdeploy names memory by numbers.
    with dlslime.RDMAEndpoint() as a, dlslime.RDMAEndpoint() as b:
        infos = json.dumps(a.endpoint_info()), json.dumps(b.endpoint_info())
        mine, theirs = np.zeros(64, np.uint8), np.full(64, 3, np.uint8)
        others = np.full(64, 4, np.uint8)
        for key, memory in ((7, theirs), (0, others)):
            number = a.register_memory_region(key, mine.ctypes.data, 0, 64)
            assert b.register_memory_region(key, memory.ctypes.data, 0, 64) == number != key
        a.connect(json.loads(infos[1]))
        a.read([(7, 7, 0, 0, 32), (0, 0, 0, 32, 32)]).wait()
        assert mine.tolist() == [3] * 32 + [4] * 32


def test_the_messages_of_a_former_peer_are_not_the_next_ones(ends, dlslime):
    initiator, local, target, remote = ends
    target.send((remote.ctypes.data, 0, 10))
    with dlslime.RDMAEndpoint() as other:
        other.connect(initiator.endpoint_info())
        initiator.connect(other.endpoint_info())
        theirs = np.full(10, 77, np.uint8)
        sent = other.send((theirs.ctypes.data, 0, 10))
        initiator.recv((local.ctypes.data, 0, 10)).wait()
        sent.wait()
        assert (local[:10] == 77).all()


def test_a_connection_that_has_ended_is_made_anew_by_connect_alone(ends):
    initiator, local, target, remote = ends
    initiator.read([("buffer", "buffer", 0, 0, 8)]).wait()
    initiator._messages.peer.disconnect()
    with pytest.raises(slime.Unavailable, match="has ended"):
        initiator.read([("buffer", "buffer", 0, 0, 4096)]).wait()
    initiator.connect(target.endpoint_info())
    local[:] = 0
    initiator.read([("buffer", "buffer", 0, 0, 4096)]).wait()
    assert (local == remote).all()


def test_a_notification_follows_its_bytes(ends):
    initiator, local, target, remote = ends
    local[:] = 5
    received = target.imm_recv()
    initiator.write_with_imm([("buffer", "buffer", 0, 0, 4096)], imm=77).wait()
    assert received.wait(SOON) == 0 and received.imm_data() == 77
    assert (remote == 5).all()
    with pytest.raises(slime.DeadlineExceeded):
        target.imm_recv().wait(0.01)


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "other_memory"])
def test_a_message_lies_in_the_senders_memory_until_a_recv_reads_it(ends, registered):
    initiator, _, target, _ = ends
    size = 300_000
    sending, receiving = np.full(size + 7, 1, np.uint8), np.zeros(size + 9, np.uint8)
    if registered:
        initiator.register_memory_region("sending", sending.ctypes.data, sending.nbytes)
        target.register_memory_region("receiving", receiving.ctypes.data, receiving.nbytes)
    sent = initiator.send((sending.ctypes.data, 7, size))
    sending[:] = 2  # seen by the receiver, because there is no copy
    assert target.recv((receiving.ctypes.data, 9, size)).wait() == 0
    assert sent.wait() == 0
    assert (receiving[9:] == 2).all() and not receiving[:9].any()


def test_a_send_that_no_recv_takes_ends_at_its_timeout(ends, dlslime, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "0.2")
    with dlslime.RDMAEndpoint() as sender, dlslime.RDMAEndpoint() as receiver:
        sender.connect(receiver.endpoint_info())
        memory = np.zeros(10, np.uint8)
        with pytest.raises(slime.DeadlineExceeded):
            sender.send((memory.ctypes.data, 0, 10)).wait()


def test_a_message_that_is_too_long_fails_at_both_ends_and_writes_nothing(ends):
    initiator, local, target, remote = ends
    local[:] = 1
    before = remote.copy()
    futures = initiator.send((local.ctypes.data, 0, 10)), target.recv((remote.ctypes.data, 0, 9))
    for future in futures * 2:
        with pytest.raises(slime.InvalidArgument):
            future.wait()
    assert (remote == before).all()
    sent = initiator.send((local.ctypes.data, 0, 10))
    target.recv((remote.ctypes.data, 0, 10)).wait()
    sent.wait()
    assert (remote[:10] == 1).all()


def test_a_message_that_is_too_short_is_an_error_at_the_receiver(ends):
    initiator, local, target, remote = ends
    sent, received = initiator.send((local.ctypes.data, 0, 10)), target.recv((remote.ctypes.data, 0, 11))
    for _ in range(2):
        with pytest.raises(slime.InvalidArgument, match="recv of 11 bytes: the message had 10"):
            received.wait()
    assert sent.wait() == 0


def test_the_same_memory_under_the_same_name_is_registered_once(dlslime):
    memory = np.zeros(64, np.uint8)
    with dlslime.RDMAEndpoint() as endpoint:
        first = endpoint.register_memory_region("a", memory.ctypes.data, 64)
        assert endpoint.register_memory_region("b", memory.ctypes.data, 64) == first + 1
        assert endpoint.register_memory_region("a", memory.ctypes.data, 0, 64) == first
        with pytest.raises(slime.AlreadyExists):
            endpoint.register_memory_region("a", memory.ctypes.data, 32)
        assert endpoint.mr_info()["a"] == {"handle": first, "addr": memory.ctypes.data, "length": 64}


def test_wrong_arguments_raise(dlslime, ends):
    initiator, local, _, _ = ends
    for wrong in (
        lambda: dlslime.RDMAEndpoint("nosuch0"),
        lambda: dlslime.RDMAEndpoint(link_type="Token Ring"),
        lambda: initiator.connect({}),
        lambda: initiator.connect("nonsense"),
        lambda: initiator.connect({"slime": {}, "mr_info": {"x": 5}}),
        lambda: initiator.read([("nosuch", "buffer", 0, 0, 1)]),
        lambda: initiator.read([("buffer", "nosuch", 0, 0, 1)]),
        lambda: initiator.read([("buffer", "buffer", 4090, 0, 10)]).wait(),
        lambda: initiator.read([("buffer", "buffer", 0, 4090, 10)]).wait(),
        lambda: asyncio.run(initiator.send_async("buffer", 4090, 10)),
        lambda: asyncio.run(initiator.async_read_batch("buffer", [0, 1], [0], 1)),
        lambda: initiator.register_memory_region("hole", 4096, 8),
        lambda: dlslime.RDMAEndpoint().read([]),
    ):
        with pytest.raises(slime.Error):
            wrong()
    assert not local.any()


TARGET = """
    import sys
    import numpy as np
    import dlslime
    endpoint = dlslime.RDMAEndpoint()
    memory = np.zeros(4096, np.uint8)
    endpoint.register_memory_region("buffer", memory.ctypes.data, 4096)
    print(endpoint.local_endpoint_info, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["read", "recv", "connect"])
def test_waits_end_with_an_error_when_the_peer_was_killed(dlslime, start_compat, monkeypatch, what):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    target = start_compat("dlslime", TARGET)
    info = target.line()
    memory = np.zeros(4096, np.uint8)
    with dlslime.RDMAEndpoint() as initiator:
        initiator.register_memory_region("buffer", memory.ctypes.data, 4096)
        if what == "connect":
            target.process.kill()
            target.process.wait()
            with pytest.raises(slime.Error):
                initiator.connect(info)
            return
        initiator.connect(info)
        initiator.read([("buffer", "buffer", 0, 0, 8)]).wait()
        outcome = []

        def wait():
            try:
                initiator.recv((memory.ctypes.data, 0, 8)).wait()
            except slime.Error as error:
                outcome.append(type(error).__name__)

        if what == "recv":
            waiting = threading.Thread(target=wait)
            waiting.start()
        os.kill(target.process.pid, signal.SIGKILL)
        target.process.wait()
        if what == "recv":
            waiting.join(3 * SOON)
            assert len(outcome) == 1
        else:
            with pytest.raises(slime.Error):
                initiator.read([("buffer", "buffer", 0, 0, 8)]).wait()


def test_the_package_itself_loads_the_old_names_when_they_are_asked_for():
    code = "import sys, slime; assert 'slime.compat' not in sys.modules; slime.RDMAEndpoint; slime.available_nic()"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        slime.nosuch


def test_all_notifications_of_a_peer_that_ends_are_taken(dlslime):
    with dlslime.RDMAEndpoint() as receiver, dlslime.RDMAEndpoint() as sender:
        mine, theirs = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
        receiver.register_memory_region("kv", mine.ctypes.data, 64)
        sender.register_memory_region("kv", theirs.ctypes.data, 64)
        receiver.connect(sender.endpoint_info())
        sender.connect(receiver.endpoint_info())
        writes = [sender.write_with_imm([("kv", "kv", 0, 0, 8)], number) for number in range(1000)]
        for write in writes:
            write.wait()
        sender.shutdown()
        for number in range(1000):
            received = receiver.imm_recv()
            assert received.wait(SOON) == 0 and received.imm_data() == number
