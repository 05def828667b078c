"""slime.compat.uccl: the code of the users of UCCL's p2p on Slime."""

import os
import signal
import socket
import struct
import threading
import time

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE, free_port

SOON = 10 * PATIENCE


@pytest.fixture(autouse=True)
def settings(compat_settings, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_PORT", str(free_port(8)))


@pytest.fixture
def p2p():
    slime.compat.install("uccl")
    from uccl import p2p

    return p2p


@pytest.fixture
def ends(p2p):
    """A client and a server with their ids of one connection."""
    with p2p.Endpoint(local_gpu_idx=0, num_cpus=4) as server, p2p.Endpoint(local_gpu_idx=1, num_cpus=4) as client:
        done, to_server = client.connect(metadata=server.get_metadata())
        assert done
        accepted, ip, gpu, to_client = server.accept(SOON)
        assert (accepted, ip, gpu) == (True, "127.0.0.1", 1)
        yield client, to_server, server, to_client


KEPT = []  # registered memory outlives its endpoint


def registered(endpoint, array):
    KEPT.append(array)
    done, mr_id = endpoint.reg(array.ctypes.data, array.nbytes)
    assert done
    return mr_id, array.ctypes.data, array.nbytes


SERVER = """
    import sys
    import numpy as np
    from uccl import p2p

    endpoint = p2p.Endpoint(local_gpu_idx=int(sys.argv[1]), num_cpus=4)
    print("ready", flush=True)
    success, remote_ip_addr, remote_gpu_idx, conn_id = endpoint.accept()
    print(f"Connected to {remote_ip_addr}", flush=True)
    data = np.zeros(5, dtype=np.float32)
    success, mr_id = endpoint.reg(data.ctypes.data, data.nbytes)
    success = endpoint.recv(conn_id, mr_id, data.ctypes.data, data.nbytes)
    print(success, data.tolist(), flush=True)
"""


def serve(start_compat, gpu):
    program = start_compat("uccl", SERVER, gpu)
    assert program.line(60) == "ready"
    return program


def test_metadata_has_the_documented_layout(p2p, ends):
    _, _, server, _ = ends
    metadata = server.get_metadata()
    assert metadata == server.get_endpoint_metadata() and len(metadata) == 10
    assert socket.inet_ntoa(metadata[:4]) == "127.0.0.1"
    assert struct.unpack("=i", metadata[6:])[0] == 0
    ip, port, gpu = p2p.Endpoint.parse_metadata(metadata)
    assert (ip, gpu) == ("127.0.0.1", 0) and struct.pack("!H", port) == metadata[4:6]
    v6 = socket.inet_pton(socket.AF_INET6, "::1") + struct.pack("!H", 7) + struct.pack("=i", 3)
    assert p2p.Endpoint.parse_metadata(v6) == ("::1", 7, 3)
    with pytest.raises(slime.InvalidArgument):
        p2p.Endpoint.parse_metadata(b"short")


@pytest.mark.parametrize("size", [1, 5, 4096, 1 << 20, 3_000_001])
def test_messages_arrive_in_both_directions(ends, size):
    client, to_server, server, to_client = ends
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for sender, sends, receiver, receives in ((client, to_server, server, to_client), (server, to_client, client, to_server)):
        target = np.zeros(size, np.uint8)
        sent = sender.send_async(sends, *registered(sender, data))[1]
        assert receiver.recv(receives, *registered(receiver, target))
        assert (target == data).all()
        assert wait_for(sender, sent)


def test_a_shorter_message_is_fine_and_the_size_is_clamped_to_the_memory(ends):
    client, to_server, server, to_client = ends
    data, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    sent = client.send_async(to_server, *registered(client, data))[1]
    mr_id, ptr, size = registered(server, target)
    assert server.recv(to_client, mr_id, ptr, 2 * size)
    assert wait_for(client, sent)
    assert (target == data).all()


def test_a_longer_message_fails_at_both_ends_and_writes_nothing(ends):
    client, to_server, server, to_client = ends
    data, target = np.arange(100, dtype=np.uint8) + 1, np.zeros(100, np.uint8)
    sent = client.send_async(to_server, *registered(client, data))[1]
    mr_id, ptr, size = registered(server, target)
    assert not server.recv(to_client, mr_id, ptr, 99)
    assert not wait_for(client, sent)
    assert not target.any()
    sent = client.send_async(to_server, *registered(client, data))[1]
    assert server.recv(to_client, mr_id, ptr, size)
    assert wait_for(client, sent)
    assert (target == data).all()


def wait_for(endpoint, transfer_id):
    deadline = time.monotonic() + SOON
    while True:
        success, done = endpoint.poll_async(transfer_id)
        if done:
            return success
        assert success and time.monotonic() < deadline


def test_async_transfers_end_and_may_be_polled_again(ends):
    client, to_server, server, to_client = ends
    targets = [np.zeros(1000, np.uint8) for _ in range(3)]
    receives = [server.recv_async(to_client, *registered(server, target))[1] for target in targets]
    assert server.poll_async(receives[0]) == (True, False)
    for value in range(3):
        done, transfer = client.send_async(to_server, *registered(client, np.full(1000, value + 1, np.uint8)))
        assert done and wait_for(client, transfer)
    for transfer in receives:
        assert wait_for(server, transfer)
        assert [server.poll_async(transfer) for _ in range(3)] == [(True, True)] * 3
    assert [set(target.tolist()) for target in targets] == [{1}, {2}, {3}]
    with pytest.raises(slime.NotFound):
        server.poll_async(12345678)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_advertised_memory_is_read_and_written(ends, asynchronous):
    client, to_server, server, to_client = ends
    memory = np.arange(4096, dtype=np.uint32).view(np.uint8)
    mr_id, ptr, _ = registered(server, memory)
    done, item = server.advertise(to_client, mr_id, ptr + 400, 800)
    assert done and len(item) == 64
    target = np.zeros(800, np.uint8)
    local = registered(client, target)
    if asynchronous:
        assert wait_for(client, client.read_async(to_server, *local, item)[1])
    else:
        assert client.read(to_server, *local, item)
    assert (target == memory[400:1200]).all()
    target[:] = 9
    before = memory.copy()
    if asynchronous:
        assert wait_for(client, client.write_async(to_server, *local, item)[1])
    else:
        assert client.write(to_server, *local, item)
    assert (memory[400:1200] == 9).all()
    assert (memory[:400] == before[:400]).all() and (memory[1200:] == before[1200:]).all()


def test_vectors_of_ranges_are_read_and_written_in_one_operation(ends):
    client, to_server, server, to_client = ends
    count = 200
    memory = np.random.default_rng(1).integers(0, 256, (count, 64), np.uint8)
    mr_id, ptr, _ = registered(server, memory)
    done, items = server.advertisev(to_client, [mr_id] * count, [ptr + 64 * i for i in range(count)], [64] * count, count)
    assert done
    targets = [np.zeros(64, np.uint8) for _ in range(count)]
    done, ids = client.regv([each.ctypes.data for each in targets], [64] * count)
    assert done
    ranges = ids, [each.ctypes.data for each in targets], [64] * count, items, count
    assert client.readv(to_server, *ranges)
    assert all((target == row).all() for target, row in zip(targets, memory))
    for target in targets:
        target ^= 255
    assert client.writev(to_server, *ranges)
    assert all((target == row).all() for target, row in zip(targets, memory))


def test_several_receives_that_are_too_small_fail_with_their_sends(ends):
    client, to_server, server, to_client = ends
    target = registered(server, np.zeros(10, np.uint8))
    receives = [server.recv_async(to_client, *target[:2], 5)[1] for _ in range(2)]
    for value in (1, 2):
        assert not client.send(to_server, *registered(client, np.full(10, value, np.uint8)))
    assert not any(wait_for(server, each) for each in receives)


def test_a_connection_that_has_ended_is_made_anew_by_connect_alone(ends):
    client, to_server, server, to_client = ends
    memory, target = np.full(64, 3, np.uint8), np.zeros(64, np.uint8)
    _, item = server.advertise(to_client, *registered(server, memory))
    local = registered(client, target)
    assert client.read(to_server, *local, item)
    client._connections[to_server].peer.disconnect()
    target[:] = 0
    assert not client.read(to_server, *local, item)
    done, again = client.connect(metadata=server.get_metadata())
    assert done and client.read(again, *local, item)
    assert (target == 3).all()


def test_memory_whose_registration_ended_is_not_reached(ends):
    client, to_server, server, to_client = ends
    memory, target = np.ones(64, np.uint8), np.zeros(64, np.uint8)
    mr_id, ptr, size = registered(server, memory)
    _, item = server.advertise(to_client, mr_id, ptr, size)
    _, unread = server.advertise(to_client, mr_id, ptr, size)
    local = registered(client, target)
    assert client.read(to_server, *local, item)
    assert server.dereg(mr_id)
    target[:] = 0
    assert not client.read(to_server, *local, item)
    assert not client.read(to_server, *local, unread)
    assert not target.any()


def test_wrong_arguments_raise(ends):
    client, to_server, server, to_client = ends
    memory = np.zeros(64, np.uint8)
    mr_id, ptr, size = registered(client, memory)
    there = registered(server, np.zeros(64, np.uint8))
    _, item = server.advertise(to_client, *there[:2], 32)
    for wrong in (
        lambda: client.send(99, mr_id, ptr, size),
        lambda: client.send(to_server, 99, ptr, size),
        lambda: client.send(to_server, mr_id, ptr, size + 1),
        lambda: client.send(to_server, mr_id, ptr - 1, size),
        lambda: client.recv(to_server, mr_id, ptr - 1, 1),
        lambda: client.sendv(to_server, [mr_id], [ptr], [size], 2),
        lambda: client.read(to_server, mr_id, ptr, 33, item),
        lambda: client.read(to_server, mr_id, ptr, 1, b"x" * 64),
        lambda: client.read(to_server, mr_id, ptr, 1, item[:-1]),
        lambda: server.advertise(to_client, there[0], there[1], 65),
        lambda: client.dereg(99),
    ):
        with pytest.raises(slime.Error):
            wrong()
    assert client.reg(0, 8) == (False, -1)
    assert client.regv([ptr, 0], [8, 8]) == (False, [])


def test_nobody_listens_and_nobody_connects(ends):
    client, _, server, _ = ends
    assert client.connect("127.0.0.1", 0, remote_port=1) == (False, -1)
    assert server.accept(0.01) == (False, "", -1, -1)


def test_a_second_endpoint_with_the_same_index_is_found_by_its_metadata(p2p):
    with p2p.Endpoint(5) as first, p2p.Endpoint(5) as second, p2p.Endpoint(6) as client:
        assert first.get_metadata() != second.get_metadata()
        assert client.connect(metadata=second.get_metadata())[0]
        assert second.accept(SOON)[0]


@pytest.mark.parametrize("waits", ["recv", "poll"])
def test_calls_end_with_false_when_the_peer_was_killed(p2p, start_compat, monkeypatch, waits):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    server = serve(start_compat, 1)
    with p2p.Endpoint(0) as client:
        done, conn_id = client.connect("127.0.0.1", remote_gpu_idx=1)
        assert done and server.line().startswith("Connected")
        memory = registered(client, np.zeros(64, np.uint8))
        outcome = []

        def wait():
            if waits == "recv":
                outcome.append(client.recv(conn_id, *memory))
            else:
                outcome.append(wait_for(client, client.recv_async(conn_id, *memory)[1]))

        waiting = threading.Thread(target=wait)
        waiting.start()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        waiting.join(3 * SOON)
        assert outcome == [False]
        assert client.send(conn_id, *memory) is False
