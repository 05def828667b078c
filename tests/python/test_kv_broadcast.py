"""slime.kv: copies of weights for many readers, and shards."""

import asyncio
import gc
import signal
import weakref

import numpy as np
import pytest

import slime
from conftest import PATIENCE, wait_until
from slime import kv

SOON = 20 * PATIENCE
SHAPES = {"w1": (300, 100), "w2": (7,), "w3": (1000, 50)}


def weights(seed=None):
    random = None if seed is None else np.random.default_rng(seed)
    return {
        name: np.zeros(shape, np.float32) if random is None else random.random(shape, np.float32)
        for name, shape in SHAPES.items()
    }


def equal(one, other):
    return all((one[name] == other[name]).all() for name in SHAPES)


@pytest.fixture
def offer(make_agent):
    def one(**options):
        agent, source = make_agent(), weights(1)
        return agent, source, kv.Broadcast(agent, source, chunk_bytes=16384, patience=5 * PATIENCE, **options)

    return one


@pytest.fixture
def make_reader(make_agent):
    def one():
        agent, copy = make_agent(), weights()
        return agent, copy, kv.Replica(agent, copy)

    return one


def test_four_readers_get_the_weights_and_two_copies_leave_the_owner(offer, make_reader):
    owner, source, broadcast = offer()
    readers = [make_reader() for _ in range(4)]
    moves = [replica.start_fetch(agent.peer(owner.address), SOON) for agent, _, replica in readers]
    for move in moves:
        move.wait(SOON)
    assert all(equal(copy, source) and replica.version == 1 for _, copy, replica in readers)
    info = broadcast.info()
    assert (info.readers, info.complete, info.from_owner, info.moves) == (4, 4, 2, 0)
    assert info.bytes_out == 2 * info.total_bytes == 2 * sum(each.nbytes for each in source.values())
    progress = moves[0].progress()
    assert progress.bytes_done == progress.bytes_total == info.total_bytes
    assert progress.layers_done == progress.layers_total > 10


def test_an_update_is_the_next_version(offer, make_reader):
    owner, source, broadcast = offer()
    agent, copy, replica = make_reader()
    peer = agent.peer(owner.address)
    replica.fetch(peer, SOON)
    with broadcast.update():
        assert broadcast.info().version == 0
        source["w1"][:] = 5
    assert broadcast.info().version == 2
    replica.fetch(peer, SOON)
    assert replica.version == 2 and equal(copy, source)


def test_an_update_that_fails_offers_nothing(offer, make_reader):
    owner, source, broadcast = offer()
    agent, _, replica = make_reader()
    with pytest.raises(ZeroDivisionError):
        with broadcast.update():
            raise ZeroDivisionError
    with pytest.raises(slime.DeadlineExceeded):
        replica.fetch(agent.peer(owner.address), 0.1)
    with broadcast.update():
        pass
    replica.fetch(agent.peer(owner.address), SOON)


def test_a_fetch_is_awaited(offer, make_reader):
    owner, source, _ = offer()
    agent, copy, replica = make_reader()

    async def wait():
        await asyncio.wait_for(replica.start_fetch(agent.peer(owner.address), SOON), SOON)

    asyncio.run(wait())
    assert equal(copy, source)


def test_a_retired_replica_may_change_and_fetches_again(offer, make_reader):
    owner, source, broadcast = offer()
    agent, copy, replica = make_reader()
    replica.fetch(agent.peer(owner.address), SOON)
    replica.retire()
    wait_until(lambda: broadcast.info().readers == 0)
    copy["w1"][:] = 0
    replica.fetch(agent.peer(owner.address), SOON)
    assert equal(copy, source) and replica.children == 0


def test_what_does_not_fit_is_refused(offer, make_agent):
    owner, source, broadcast = offer()
    agent = make_agent()
    copy = weights()
    copy["w2"] = np.zeros(8, np.float32)
    replica = kv.Replica(agent, copy)
    with pytest.raises(slime.InvalidArgument, match="region 1 of this reader is w2 with 32 bytes"):
        replica.fetch(agent.peer(owner.address), SOON)
    with pytest.raises(slime.InvalidArgument, match="fan_out is 0"):
        kv.Broadcast(agent, source, fan_out=0)
    with pytest.raises(slime.AlreadyExists):
        kv.Replica(agent, copy)
    copy["w1"].flags.writeable = False
    with pytest.raises(slime.PermissionDenied, match="w1 is read-only"):
        kv.Replica(agent, copy, name="other")
    broadcast.close()
    with pytest.raises(slime.Unavailable):
        broadcast.publish()


def test_a_dropped_replica_lets_its_memory_go(make_agent):
    class Array(np.ndarray):
        pass

    memory = np.zeros(8192, np.uint8).view(Array)
    gone = weakref.ref(memory)
    replica = kv.Replica(make_agent(), {"w": memory})
    del memory, replica
    wait_until(lambda: gc.collect() is not None and gone() is None)


OWNER = """
import slime, sys
import numpy as np
from slime import kv
agent = slime.PeerAgent(provider=PROVIDER)
broadcast = kv.Broadcast(agent, {"w": np.full(8 << 20, 7, np.uint8)}, chunk_bytes=65536)
print(agent.address, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_an_owner_that_does_not_answer_ends_a_fetch(make_agent, start_python, how):
    owner = start_python(OWNER)
    agent = make_agent()
    copy = np.zeros(8 << 20, np.uint8)
    replica = kv.Replica(agent, {"w": copy})
    peer = agent.peer(owner.line())
    replica.fetch(peer, SOON)
    assert (copy == 7).all()
    owner.signal(how)
    if how == signal.SIGKILL:
        owner.process.wait(SOON)
    with pytest.raises((slime.Unavailable, slime.DeadlineExceeded)):
        replica.fetch(peer, 0.5)
    assert replica.version == 0


def test_shards_of_three_owners_become_whole_tensors(make_agent):
    whole = {"rows": np.arange(9 * 4, dtype=np.int16).reshape(9, 4), "columns": np.random.rand(5, 6, 2)}
    owners = []
    for rank in range(3):
        agent = make_agent()
        rows = whole["rows"][3 * rank : 3 * rank + 3].copy()
        columns = whole["columns"][:, 2 * rank : 2 * rank + 2].copy()
        shards = [
            kv.Shard.of_rank("rows", rows, rank, 3),
            kv.Shard("columns", columns, (5, 6, 2), dim=1, first=2 * rank),
        ]
        owners.append((agent, kv.Shards(agent, shards)))
    agent = make_agent()
    got = {name: np.zeros_like(each) for name, each in whole.items()}
    with kv.Gather(agent, [agent.peer(each.address) for each, _ in owners], got, timeout=SOON) as gather:
        move = gather.start_read(SOON)
        move.wait()
        assert move.progress().bytes_done == sum(each.nbytes for each in got.values())
        assert all((got[name] == whole[name]).all() for name in whole)
        got["rows"][:] = 0
        gather.read(SOON)
        assert (got["rows"] == whole["rows"]).all()
        owners[1][1].close()
        with pytest.raises(slime.Error):
            gather.read(SOON)


def test_shards_with_a_gap_and_wrong_shapes_are_refused(make_agent):
    owner, agent = make_agent(), make_agent()
    kept = kv.Shards(owner, [kv.Shard("w", np.zeros((3, 4), np.float32), (8, 4))])
    peers = [agent.peer(owner.address)]
    with pytest.raises(slime.InvalidArgument, match="end at index 3 of 8"):
        kv.Gather(agent, peers, {"w": np.zeros((8, 4), np.float32)}, timeout=SOON)
    with pytest.raises(slime.InvalidArgument, match="items of 8 bytes"):
        kv.Gather(agent, peers, {"w": np.zeros((8, 4))}, timeout=SOON)
    with pytest.raises(slime.InvalidArgument, match="no owner has x"):
        kv.Gather(agent, peers, {"x": np.zeros(4)}, timeout=SOON)
    with pytest.raises(slime.InvalidArgument, match="is no shard along dimension 1"):
        kv.Shards(agent, [kv.Shard("w", np.zeros((3, 4)), (8, 4), dim=1)])
    kept.close()
