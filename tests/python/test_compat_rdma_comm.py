"""slime.compat.rdma_comm: the code of KVTransferManager's users on Slime."""

import logging
import os
import random
import signal

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE, PROVIDER, free_port, wait_until

SOON = 10 * PATIENCE
SEED = int(os.environ.get("SLIME_TEST_SEED") or random.randrange(1 << 30))
LAYERS, BLOCKS, BLOCK_BYTES = 3, 64, 4096


@pytest.fixture(autouse=True)
def settings(compat_settings, monkeypatch):
    for name in list(os.environ):
        if name.startswith("KVCACHE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def make():
    """Makes communicators with their caches: (communicator, keys, values)."""
    from contextlib import ExitStack

    communicator = slime.compat.install("rdma_comm").RDMACommunicator
    kept = []  # the memory outlives the communicators, whatever a test keeps
    with ExitStack() as stack:

        def one(role, port, layers=LAYERS, blocks=BLOCKS, block_bytes=BLOCK_BYTES, values=True, rank=(1, 0)):
            caches = [
                [np.zeros((blocks, block_bytes), np.uint8) for _ in range(layers)] for _ in range(2 if values else 1)
            ]
            kept.append(caches)
            pointers = [[each.ctypes.data for each in cache] for cache in caches] + [[]]
            made = communicator(
                role=role,
                gpu_idx=0,
                port=port,
                local_key_cache=pointers[0],
                local_value_cache=pointers[1],
                block_number=blocks,
                block_bytes=block_bytes,
                prefill_tp_size=rank[0],
                prefill_tp_idx=rank[1],
            )
            return (stack.enter_context(made), *caches)

        yield one


DECODE = """
    import sys
    import numpy as np
    from rdma_comm import RDMACommunicator

    key, value = np.zeros(1024 * 4096, dtype=np.uint8), np.zeros(1024 * 4096, dtype=np.uint8)
    comm = RDMACommunicator("decode", 0, sys.argv[1], [key.ctypes.data], [value.ctypes.data], 1024, 4096)
    print("ready", flush=True)
    sys.stdin.readline()
    for cache in (key, value):
        blocks = cache.reshape(1024, 4096)
        print([i for i in range(1024) if blocks[i].any()], sorted(set(blocks[3:6].flatten().tolist())), flush=True)
"""


@pytest.mark.parametrize("values", [True, False], ids=["keys_and_values", "one_latent_cache"])
def test_exactly_the_blocks_that_are_named_arrive(make, values):
    print("SLIME_TEST_SEED", SEED)
    choose = random.Random(SEED)
    port = str(free_port())
    decode, *targets = make("decode", port, values=values)
    prefill, *sources = make("prefill", port, values=values)
    for number, cache in enumerate(sources):
        for layer, blocks in enumerate(cache):
            blocks[:] = np.random.default_rng(SEED + 10 * number + layer).integers(1, 256, blocks.shape, np.uint8)
    assert prefill.connect("127.0.0.1", port) and prefill.is_connected("127.0.0.1", port)
    expected = [[np.zeros_like(blocks) for blocks in cache] for cache in targets]
    for _ in range(30):
        layer = choose.randrange(LAYERS)
        count = choose.randrange(1, 20)
        local = [choose.randrange(BLOCKS) for _ in range(count)]  # unsorted and repeated
        remote = choose.sample(range(BLOCKS), count)
        assert prefill.write_cache("127.0.0.1", port, local, remote, layer) == 0
        for into, cache in zip(expected, sources):
            into[layer][remote] = cache[layer][local]
        for cache, wanted in zip(targets, expected):
            assert all((blocks == each).all() for blocks, each in zip(cache, wanted))


def test_nothing_to_write_is_written(make):
    port = str(free_port())
    make("decode", port)
    prefill = make("prefill", port)[0]
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [], [], 0) == 0


def test_wrong_arguments_raise_before_a_byte_moves(make):
    port = str(free_port())
    _, keys, values = make("decode", port)
    prefill, sources, _ = make("prefill", port)
    sources[0][:] = 1
    assert prefill.connect("127.0.0.1", port)
    for local, remote, layer in (
        ([0, BLOCKS], [0, 1], 0),
        ([0, 1], [0, BLOCKS], 0),
        ([0, -1], [0, 1], 0),
        ([0, 1], [0, -1], 0),
        ([0, 1], [0], 0),
        ([0], [0], LAYERS),
        ([0], [0], -1),
    ):
        with pytest.raises(slime.InvalidArgument):
            prefill.write_cache("127.0.0.1", port, local, remote, layer)
    assert not any(blocks.any() for blocks in (*keys, *values))
    with pytest.raises(slime.InvalidArgument):
        make("both", port)


def test_without_a_connection_nothing_is_reported_as_written(make):
    prefill = make("prefill", "0")[0]
    assert prefill.connect("127.0.0.1", "1") is False
    assert prefill.is_connected("127.0.0.1", "1") is False
    assert prefill.write_cache("127.0.0.1", "1", [0], [0], 0) == -1


@pytest.mark.parametrize("other", [{"layers": 2}, {"block_bytes": 2048}, {"values": False}], ids=str)
def test_other_geometries_are_refused_with_both(make, caplog, other):
    port = str(free_port())
    make("decode", port, **other)
    prefill = make("prefill", port)[0]
    with caplog.at_level(logging.WARNING, "slime.compat"):
        assert prefill.connect("127.0.0.1", port) is False
    assert "'block_bytes': 4096" in caplog.text and "do not match" in caplog.text


# Heads of a whole block, and the bytes of each: tokens x numbers, which follow the heads (HND).
HEADS, HEAD_BYTES = 12, 96


def heads_of(degree, rank):
    return slice(rank * HEADS // degree, (rank + 1) * HEADS // degree)


@pytest.mark.parametrize(
    "prefill_degree, decode_degree", [(1, 4), (4, 2), (2, 1), (2, 4), (4, 1), (3, 2), (2, 2)], ids=str
)
def test_between_other_degrees_each_head_arrives_where_its_rank_has_it(make, prefill_degree, decode_degree):
    print("SLIME_TEST_SEED", SEED)
    choose = random.Random(SEED)
    made = {}
    ports = [str(free_port()) for _ in range(decode_degree)]
    for role, degree in (("decode", decode_degree), ("prefill", prefill_degree)):
        made[role] = [
            make(
                role,
                ports[rank] if role == "decode" else "0",
                blocks=20 if role == "decode" else 12,
                block_bytes=HEADS // degree * HEAD_BYTES,
                rank=(degree, rank),
            )
            for rank in range(degree)
        ]
    # The whole blocks of keys and values, as they are at prefill, and as they have to be at decode.
    bytes_of = np.random.default_rng(SEED).integers
    whole = bytes_of(1, 256, (2, LAYERS, 12, HEADS, HEAD_BYTES), np.uint8)
    for rank, (_, *caches) in enumerate(made["prefill"]):
        for kind, layer in ((kind, layer) for kind in range(2) for layer in range(LAYERS)):
            caches[kind][layer][:] = whole[kind, layer][:, heads_of(prefill_degree, rank)].reshape(12, -1)
    expected = np.zeros((2, LAYERS, 20, HEADS, HEAD_BYTES), np.uint8)
    written = {}
    for rank, (prefill, *_) in enumerate(made["prefill"]):
        for peer, port in enumerate(ports):
            mine, theirs = heads_of(prefill_degree, rank), heads_of(decode_degree, peer)
            shared = max(mine.start, theirs.start) < min(mine.stop, theirs.stop)
            assert prefill.connect("127.0.0.1", port, decode_degree) is shared
            if shared:
                written.setdefault(rank, []).append(port)
    for layer in range(LAYERS):
        local = [choose.randrange(12) for _ in range(7)]
        remote = choose.sample(range(20), 7)
        for rank, peers in written.items():
            for port in peers:
                assert made["prefill"][rank][0].write_cache("127.0.0.1", port, local, remote, layer) == 0
        expected[:, layer, remote] = whole[:, layer, local]
    for rank, (_, *caches) in enumerate(made["decode"]):
        mine = expected[:, :, :, heads_of(decode_degree, rank)]
        assert all(
            (caches[kind][layer] == mine[kind, layer].reshape(20, -1)).all()
            for kind in range(2)
            for layer in range(LAYERS)
        )


def test_one_latent_cache_goes_as_a_whole_to_each_rank(make):
    ports = [str(free_port()) for _ in range(2)]
    caches = [make("decode", port, values=False, rank=(2, rank))[1] for rank, port in enumerate(ports)]
    prefill, sources = make("prefill", "0", values=False, rank=(4, 3))
    sources[1][:] = 5
    for port, cache in zip(ports, caches):
        assert prefill.connect("127.0.0.1", port)
        assert prefill.write_cache("127.0.0.1", port, [0, 1], [4, 2], 1) == 0
        assert (cache[1][[4, 2]] == 5).all() and cache[1].any(axis=1).sum() == 2


def test_ids_are_checked_against_blocks_also_between_other_degrees(make):
    port = str(free_port())
    _, keys, values = make("decode", port, blocks=4, block_bytes=BLOCK_BYTES // 4, rank=(4, 3))
    prefill, sources, _ = make("prefill", "0", blocks=8)
    sources[0][:] = 1
    assert prefill.connect("127.0.0.1", port)
    for local, remote in (([8], [0]), ([0], [4]), ([-1], [0]), ([0], [-1])):
        with pytest.raises(slime.InvalidArgument, match="block ids"):
            prefill.write_cache("127.0.0.1", port, local, remote, 0)
    assert not any(blocks.any() for blocks in (*keys, *values))


@pytest.mark.parametrize(
    "rank, block_bytes, degree, reason",
    [
        ((2, 0), BLOCK_BYTES, 0, "do not match"),  # twice the bytes of the whole block
        ((2, 1), BLOCK_BYTES // 2, 4, "dst_tp_size is 4"),
        ((1, 0), BLOCK_BYTES // 2, 0, "do not match"),
    ],
    ids=str,
)
def test_degrees_that_do_not_fit_are_refused_with_the_reason(make, caplog, rank, block_bytes, degree, reason):
    port = str(free_port())
    make("decode", port, block_bytes=block_bytes, rank=rank)
    prefill = make("prefill", "0")[0]
    with caplog.at_level(logging.WARNING, "slime.compat"):
        assert prefill.connect("127.0.0.1", port, degree) is False
    assert reason in caplog.text and "'tp_size': " in caplog.text


def test_a_rank_outside_its_degree_is_refused(make):
    for rank in ((2, 2), (1, -1), (0, 0)):
        with pytest.raises(slime.InvalidArgument, match="prefill_tp_idx"):
            make("prefill", "0", rank=rank)


def test_a_communicator_of_a_version_without_degrees_has_degree_1(make, monkeypatch):
    port = str(free_port())
    decode, keys, _ = make("decode", port)
    for name in ("tp_size", "tp_idx"):
        del decode._host.about[name]
    prefill, sources, _ = make("prefill", "0", block_bytes=BLOCK_BYTES // 2, rank=(2, 1))
    sources[0][:] = 1
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [0], [9], 0) == 0
    assert (keys[0][9][BLOCK_BYTES // 2 :] == 1).all() and not keys[0][9][: BLOCK_BYTES // 2].any()


def test_another_number_of_blocks_is_fine(make):
    port = str(free_port())
    _, keys, _ = make("decode", port, blocks=200)
    prefill, sources, _ = make("prefill", port)
    sources[1][:] = 3
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [5], [199], 1) == 0
    assert (keys[1][199] == 3).all() and not keys[1][:199].any()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_dead_or_frozen_peer_is_never_a_success(make, start_compat, monkeypatch, how):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    port = str(free_port())
    decode = start_compat("rdma_comm", DECODE, port)
    assert decode.line() == "ready"
    prefill = make("prefill", "0", layers=1, blocks=1024)[0]
    assert prefill.connect("127.0.0.1", port)
    decode.signal(how)
    if how == signal.SIGKILL:
        decode.process.wait()
        wait_until(lambda: not prefill.is_connected("127.0.0.1", port))
        assert prefill.write_cache("127.0.0.1", port, [0], [0], 0) == -1
        return
    # Memory of a stopped process on this host is written without its help.
    assert prefill.write_cache("127.0.0.1", port, [0], [0], 0) in ((0, -1) if PROVIDER != "tcp" else (-1,))
    os.kill(decode.process.pid, signal.SIGCONT)


def test_a_new_process_at_the_port_needs_a_new_connection(make, start_compat):
    port = str(free_port())
    first = start_compat("rdma_comm", DECODE, port)
    assert first.line() == "ready"
    prefill = make("prefill", "0", layers=1, blocks=1024)[0]
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [0], [0], 0) == 0
    first.process.kill()
    first.process.wait()
    second = start_compat("rdma_comm", DECODE, port)
    assert second.line() == "ready"
    assert prefill.write_cache("127.0.0.1", port, [0], [0], 0) == -1
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [0], [0], 0) == 0


def test_a_connection_that_has_ended_is_made_anew_by_connect_alone(make):
    port = str(free_port())
    _, keys, _ = make("decode", port)
    prefill, sources, _ = make("prefill", port)
    sources[0][:] = 1
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [0], [0], 0) == 0
    prefill._peers[("127.0.0.1", int(port))].connection.peer.disconnect()
    assert prefill.write_cache("127.0.0.1", port, [0], [9], 0) == -1
    assert not prefill.is_connected("127.0.0.1", port)
    assert prefill.connect("127.0.0.1", port)
    assert prefill.write_cache("127.0.0.1", port, [0], [9], 0) == 0
    assert (keys[0][9] == 1).all()


def test_the_variables_of_the_environment_are_used(make, monkeypatch, tmp_path):
    from slime.compat import rdma_comm

    assert rdma_comm._verbs_settings(0) is None
    monkeypatch.setenv("KVCACHE_RDMA_NICS", "mlx5_0, mlx5_1,mlx5_2")
    monkeypatch.setenv("KVCACHE_RDMA_GID_INDEX", "3")
    monkeypatch.setenv("KVCACHE_IB_TIMEOUT", "18")
    monkeypatch.setenv("KVCACHE_RELAX_ORDERING", "true")
    monkeypatch.setenv("KVCACHE_GDRCOPY_FLUSH_ENABLE", "1")
    assert rdma_comm._verbs_settings(4) == {
        "device": "mlx5_1",
        "gid_index": "3",
        "timeout": "18",
        "relaxed_ordering": True,
        "flush_read": True,
    }
    with pytest.raises(slime.Error, match="verbs"):
        monkeypatch.setenv("SLIME_PROVIDER", "auto")
        make("prefill", "0")
    monkeypatch.setenv("SLIME_PROVIDER", "tcp")
    monkeypatch.setenv("KVCACHE_IB_TIMEOUT", "100")
    with pytest.raises(slime.InvalidArgument, match="timeout is '100', must be 1 to 31"):
        make("prefill", "0")
    monkeypatch.delenv("KVCACHE_IB_TIMEOUT")
    monkeypatch.setenv("KVCACHE_ERROR_FILE", str(tmp_path / "errors"))
    monkeypatch.setenv("KVCACHE_SOCKET_IFNAME", "lo")
    prefill = make("prefill", "0")[0]
    assert prefill.connect("127.0.0.1", "1") is False
    assert "connect to 127.0.0.1:1" in (tmp_path / "errors").read_text()
    monkeypatch.setenv("KVCACHE_SOCKET_IFNAME", "nosuch0")
    with pytest.raises(slime.NotFound, match="nosuch0"):
        make("prefill", "0")
