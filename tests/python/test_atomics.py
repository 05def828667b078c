import threading

import numpy
import pytest

import slime
from conftest import peer_and_region

Rights = slime.Rights


def test_fetch_add_gives_the_number_as_it_was(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    numbers = numpy.frombuffer(region, "uint64")
    assert peer.fetch_add(remote, 16, 40).result() == 0
    assert peer.fetch_add(remote, remote_offset=16, add=2, timeout=5).result() == 40
    assert peer.fetch_add(remote, 16, 0).result() == 42
    assert numbers[2] == 42 and numbers.sum() == 42
    assert peer.info()["counters"]["atomics"] == 3


def test_numbers_wrap_around_and_may_be_subtracted(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    assert peer.fetch_add(remote, 0, 2**64 - 1).result() == 0
    assert peer.fetch_add(remote, 0, 11).result() == 2**64 - 1
    assert peer.fetch_add(remote, 0, -3).result() == 10
    assert peer.fetch_add(remote, 0, -(2**63)).result() == 7
    assert peer.fetch_add(remote, 0, 0).result() == 2**63 + 7


def test_compare_swap_stores_only_over_the_expected_number(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    numbers = numpy.frombuffer(region, "uint64")
    assert peer.compare_swap(remote, 8, 0, 2**64 - 1).result() == 0
    assert peer.compare_swap(remote, 8, 5, 6).result() == 2**64 - 1
    assert numbers[1] == 2**64 - 1
    assert peer.compare_swap(remote, remote_offset=8, expected=2**64 - 1, desired=3, timeout=5).result() == 2**64 - 1
    assert numbers[1] == 3


def test_threads_of_two_agents_take_each_ticket_once(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    own = b.peer(b.address)  # an agent can be its own peer
    users = [(peer, remote), (own, own.region("memory"))] * 2
    tickets = [[] for _ in users]

    def take(out, peer, remote):
        for _ in range(50):
            out.append(peer.fetch_add(remote, 24, 1).result())

    threads = [threading.Thread(target=take, args=(out, *user)) for out, user in zip(tickets, users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sum(tickets, [])) == list(range(200))


def test_many_at_once(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    futures = [peer.fetch_add(remote, 0, 1) for _ in range(1000)]
    assert sorted(f.result() for f in futures) == list(range(1000))


@pytest.mark.parametrize("offset", [4, 1, 256, 252, 2**64 - 8])
def test_misaligned_and_beyond_the_end_is_invalid(pair, offset):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    with pytest.raises(slime.InvalidArgument):
        peer.fetch_add(remote, offset, 1).result()
    with pytest.raises(slime.InvalidArgument):
        peer.compare_swap(remote, offset, 0, 1).result()
    assert not any(memoryview(region))
    assert peer.fetch_add(remote, 248, 1).result() == 0  # the connection is fine


@pytest.mark.parametrize(
    "arguments", [(-1, 1), (2**64, 1), (0, 2**64), (0, -(2**63) - 1), (0, -1, 0), (0, 0, -1), (0, 0, 2**64)]
)
def test_numbers_out_of_range_are_refused(pair, arguments):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    call = peer.fetch_add if len(arguments) == 2 else peer.compare_swap
    with pytest.raises(slime.InvalidArgument):
        call(remote, *arguments)


def test_what_is_no_number_is_a_type_error(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    with pytest.raises(TypeError):
        peer.fetch_add(remote, 0, 1.5)
    with pytest.raises(TypeError):
        peer.fetch_add(b"region", 0, 1)


@pytest.mark.parametrize("rights", [Rights.REMOTE_READ, Rights.REMOTE_WRITE])
def test_both_rights_are_needed(pair, rights):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b, rights=rights)
    with pytest.raises(slime.PermissionDenied, match="atomics"):
        peer.fetch_add(remote, 0, 1).result()
    assert not any(memoryview(region))


def test_a_closed_region_ends_them(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    view = numpy.frombuffer(region, "uint64")
    region.close()
    with pytest.raises(slime.Error):
        peer.fetch_add(remote, 0, 1).result()
    assert not view.any()
