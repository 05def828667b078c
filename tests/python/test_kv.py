"""slime.kv: blocks of paged KV caches between processes."""

import asyncio
import gc
import signal
import socket
import time
import weakref

import numpy as np
import pytest

import slime
from conftest import PATIENCE, wait_until
from slime import kv

SOON = 10 * PATIENCE
FIELDS = {"layers": 3, "blocks": 8, "block_tokens": 4, "heads": 2, "head_bytes": 16}


@pytest.fixture
def make(make_agent):
    """Makes an agent with a cache; of agents that live as long as the test."""

    def one(memory=None, rights=slime.Rights.READ_WRITE, **changes):
        agent = make_agent()
        return agent, kv.Cache(agent, kv.Geometry(**{**FIELDS, **changes}), memory, rights=rights)

    return one


def fill(cache):
    """Gives each token and head a number of its own, the same in whatever order and rank it lies."""
    g = cache.geometry
    first, heads = g.rank_heads()
    for layer in range(g.layers):
        for region, (_, size) in enumerate(g.regions()):
            block, token, head = np.meshgrid(
                np.arange(g.blocks), np.arange(g.block_tokens), first + np.arange(heads), indexing="ij"
            )
            unit = ((layer * 2 + region) * 8 + block) * 16 + token * 4 + head + 1
            if g.order == kv.Order.HND:
                unit = unit.transpose(0, 2, 1)
            units = cache.region(layer, region).reshape(-1, g.head_bytes).view(np.uint16)
            units[:] = unit.reshape(-1, 1)


def join(agent, cache, other_agent):
    return kv.connect(agent.peer(other_agent.address), cache, timeout=SOON)


def test_exactly_the_target_blocks_are_written_and_read(make):
    prefill, source = make()
    decode, target = make(blocks=12)
    fill(source)
    remote = join(prefill, source, decode)
    remote.write_blocks(np.array([0, 1, 5]), [10, 11, 2], timeout=SOON)
    for layer in range(3):
        for region in range(2):
            wanted = np.zeros_like(target.region(layer, region))
            wanted[[10, 11, 2]] = source.region(layer, region)[[0, 1, 5]]
            assert (target.region(layer, region) == wanted).all()
    remote.read_blocks([7], [10], timeout=SOON)
    assert (source.region(2, 1)[7] == source.region(2, 1)[0]).all()


@pytest.mark.parametrize("degrees", [(1, 2), (2, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize("order", [kv.Order.NHD, kv.Order.HND])
def test_ranks_of_other_degrees_get_their_heads(make, degrees, order):
    senders = [make(tp_degree=degrees[0], tp_rank=rank) for rank in range(degrees[0])]
    receivers = [make(tp_degree=degrees[1], tp_rank=rank, order=order) for rank in range(degrees[1])]
    for agent, cache in senders:
        fill(cache)
        for rank in kv.targets_of(cache.geometry, degrees[1]):
            join(agent, cache, receivers[rank][0]).write_blocks([0, 1, 2, 3], [0, 1, 2, 3], request=1, timeout=SOON)
    for _, cache in receivers:
        cache.wait_layer(1, 2, SOON)
        got = [cache.region(layer, region).copy() for layer in range(3) for region in range(2)]
        fill(cache)
        for each, (layer, region) in zip(got, [(layer, region) for layer in range(3) for region in range(2)]):
            assert (each[:4] == cache.region(layer, region)[:4]).all() and not each[4:].any()


def test_memory_is_arrays_or_addresses(make):
    keys = [np.zeros((8, 4, 2, 8), np.uint16) for _ in range(3)]
    values = [np.zeros((8, 4, 2, 8), np.uint16) for _ in range(3)]
    prefill, source = make([[k, v.ctypes.data] for k, v in zip(keys, values)])
    decode, target = make([np.zeros(8 * 256, np.uint8) for _ in range(3)], form=kv.Form.FUSED)
    keys[1][3], values[1][3] = 7, 9
    join(prefill, source, decode).write_blocks([3], [6], timeout=SOON)
    got = target.region(1)[6 * 256 : 7 * 256].view(np.uint16)
    assert (got[:64] == 7).all() and (got[64:] == 9).all()


def test_wrong_memory_is_refused(make):
    sheet = [np.zeros(8 * 128, np.uint8) for _ in range(6)]
    for memory, text in (
        (sheet, "6 layers"),
        ([sheet[:2]] * 2, "2 layers"),
        ([sheet[:2], sheet[2:4], [sheet[4], sheet[5][1:]]], "layer 2, v: 1023 bytes"),
    ):
        with pytest.raises(slime.InvalidArgument, match=text):
            make(memory)
    sheet[3].flags.writeable = False
    with pytest.raises(slime.PermissionDenied, match="memory 3 is read-only"):
        make([sheet[:2], sheet[2:4], sheet[4:]])


def test_wrong_ids_are_refused_before_a_byte_moves(make):
    prefill, source = make()
    decode, target = make()
    fill(source)
    remote = join(prefill, source, decode)
    for local, there, text in (
        ([0, 8], [0, 1], "local block 1 has the id 8"),
        ([0, 1], [0, 99], "remote block 1 has the id 99"),
        ([0, 1], [0], "2 local ids, 1 remote ids"),
        ([0, 1], [3, 3], "remote id 3 is there twice"),
        ([0, -1], [3, 4], "local_ids"),
    ):
        with pytest.raises(slime.InvalidArgument, match=text):
            remote.write_blocks(local, there)
    with pytest.raises(slime.InvalidArgument, match="layer 3 is not in both caches"):
        remote.write_blocks([0], [0], layer=3)
    assert not target.region(0).any()


def test_caches_that_cannot_be_mapped_are_refused_with_both_geometries(make):
    prefill, source = make()
    decode, target = make(head_bytes=32)
    with pytest.raises(slime.InvalidArgument) as error:
        join(prefill, source, decode)
    assert str(source.geometry) in str(error.value) and str(target.geometry) in str(error.value)


def test_a_geometry_is_checked_compared_and_encoded():
    with pytest.raises(slime.InvalidArgument, match="tp_degree"):
        kv.Geometry(**FIELDS, tp_degree=3)
    with pytest.raises(slime.InvalidArgument, match="blocks"):
        kv.Geometry(**{**FIELDS, "blocks": -1})
    geometry = kv.Geometry(**FIELDS, scale_bytes=4)
    assert geometry.regions() == [("k", 128), ("v", 128), ("k_scale", 32), ("v_scale", 32)]
    assert (geometry.block_bytes(), geometry.layer_bytes()) == (320, 2560)
    again = kv.Geometry.decode(geometry.encode())
    assert again == geometry and hash(again) == hash(geometry) and again != kv.Geometry(**FIELDS)
    with pytest.raises(slime.InvalidArgument):
        kv.Geometry.decode(geometry.encode()[:-1])
    assert kv.map_blocks(geometry, again).pieces[0] == kv.Piece(0, 0, 0, 0, 128)


def test_layers_are_told_in_order(make):
    prefill, source = make()
    decode, target = make()
    told = []
    target.on_layer(lambda layer, request: told.append((layer, request)))
    remote = join(prefill, source, decode)
    moves = [remote.start_write([0], [0], layer=layer, request=1 << 40, timeout=SOON) for layer in range(3)]
    for move in moves:
        move.wait(SOON)
    wait_until(lambda: told == [(0, 1 << 40), (1, 1 << 40), (2, 1 << 40)])
    target.wait_layer(1 << 40, 2)
    target.forget(1 << 40)
    with pytest.raises(slime.DeadlineExceeded, match="has not arrived"):
        target.wait_layer(1 << 40, 2, 0.01)


def test_a_handler_that_fails_gets_the_next_layer(make, caplog):
    prefill, source = make()
    decode, target = make()
    told = []

    def handler(layer, request):
        told.append(layer)
        raise ValueError("of the test")

    target.on_layer(handler)
    join(prefill, source, decode).write_blocks([0], [0], request=1, timeout=SOON)
    wait_until(lambda: told == [0, 1, 2])
    assert "of the test" in caplog.text


def test_a_move_is_awaited_and_has_progress(make):
    prefill, source = make()
    decode, _ = make()
    move = join(prefill, source, decode).start_write([0, 1], [1, 0], timeout=SOON)

    async def wait():
        await asyncio.wait_for(move, SOON)

    asyncio.run(wait())
    progress = move.progress()
    assert progress.bytes_done == progress.bytes_total == 3 * 2 * 256
    assert progress.layers_done == progress.layers_total == 3
    assert progress.left == 0


def test_a_closed_cache_moves_nothing(make):
    prefill, source = make()
    decode, target = make()
    remote = join(prefill, source, decode)
    with target:
        pass
    with pytest.raises(slime.Error):
        remote.write_blocks([0], [0], timeout=SOON)
    with pytest.raises(slime.Unavailable, match="closed"):
        target.wait_layer(1, 0, SOON)
    target.close()


def test_the_name_of_a_closed_cache_can_be_served_again(make):
    prefill, source = make()
    decode, target = make()
    join(prefill, source, decode)
    with pytest.raises(slime.AlreadyExists):
        kv.Cache(decode, target.geometry)
    target.close()
    with kv.Cache(decode, target.geometry) as again:
        source.region(0)[1] = 5
        join(prefill, source, decode).write_blocks([1], [0], request=3, timeout=SOON)
        again.wait_layer(3, 0, SOON)
        assert (again.region(0)[0] == 5).all()


def test_a_dropped_cache_lets_its_memory_go(make_agent):
    class Array(np.ndarray):
        pass

    agent = make_agent()
    memory = [np.zeros(8 * 128, np.uint8).view(Array) for _ in range(6)]
    gone = [weakref.ref(each) for each in memory]
    cache = kv.Cache(agent, kv.Geometry(**FIELDS), [memory[:2], memory[2:4], memory[4:]])
    cache.on_layer(print)
    del memory, cache
    wait_until(lambda: gc.collect() is not None and all(each() is None for each in gone))


PEER = """
import slime, sys
from slime import kv
agent = slime.PeerAgent(provider=PROVIDER)
cache = kv.Cache(agent, kv.Geometry(layers=3, blocks=8, block_tokens=4, heads=2, head_bytes=16))
print(agent.address, flush=True)
sys.stdin.readline()
"""


def test_a_cache_that_is_dropped_while_an_interrupted_connect_goes_on_is_closed(make_agent):
    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    owner, writer = make_agent(), make_agent()
    memory = [np.zeros(8 * 256, np.uint8) for _ in range(3)]
    cache = kv.Cache(owner, kv.Geometry(**{**FIELDS, "form": kv.Form.LATENT, "heads": 1, "head_bytes": 64}), memory)
    peer = writer.peer(owner.address)
    target = peer.region("kv/cache/0/latent", timeout=SOON)
    source = writer.register_memory(bytearray(b"x" * 256))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:  # never answers the handshake
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Interrupted):
                kv.connect(owner.peer(f"127.0.0.1:{silent.getsockname()[1]}"), cache, timeout=20)
            gone = weakref.ref(cache)
            del cache
            gc.collect()
            assert gone() is None
            with pytest.raises(slime.Error):
                peer.write([slime.Copy(source, 0, target, 0, 256)], timeout=SOON).result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not memory[0].any()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_peer_that_does_not_answer_ends_a_write_by_its_timeout(make, start_python, how):
    prefill, source = make()
    peer = start_python(PEER)
    remote = kv.connect(prefill.peer(peer.line()), source, timeout=SOON)
    remote.write_blocks([0, 1], [0, 1], request=1, timeout=SOON)
    peer.signal(how)
    if how == signal.SIGKILL:
        peer.process.wait(SOON)
    began = time.monotonic()
    with pytest.raises((slime.Unavailable, slime.DeadlineExceeded)):
        remote.write_blocks([0, 1], [0, 1], request=2, timeout=0.3)
    assert time.monotonic() - began < 0.3 + SOON / 2
