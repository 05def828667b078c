"""Arrays, tensors, regions and long bytes in calls: lent where they lie, received as views."""

import asyncio
import os
import queue

import numpy
import pytest

import slime
from conftest import Echo, program, same
from slime import _attachments

MIB = 1 << 20
DTYPES = [
    *("?", "i1", "u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", "<u8", "<f2", "<f4", ">f4", "<f8", ">f8"),
    *("<f16", "<c8", ">c8", "<c16", "<M8[ns]", "<m8[s]", ">M8[D]", "S7", "<U5", ">U5"),
]


def filled(dtype, shape):
    dtype = numpy.dtype(dtype)
    count = int(numpy.prod(shape, dtype=int)) * dtype.itemsize
    return numpy.frombuffer(bytes(i % 2 if dtype.kind == "b" else i % 100 for i in range(count)), dtype).reshape(shape)


# ---- what travels


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_come_back_with_dtype_shape_and_byte_order(echo, dtype):
    _, peer, _ = echo
    proxy = peer.proxy("Echo")
    for shape in ((3,), (2, 3, 4), (300, 700), (), (0,), (4, 0, 2)):
        array = filled(dtype, shape)
        if dtype == "S7" and shape == ():
            continue  # one item of bytes is bytes
        assert same(proxy.same(array), array), shape


def test_arrays_travel_inside_of_values(echo):
    _, peer, _ = echo
    value = {"a": numpy.arange(5), "b": [1, "two", numpy.ones((2, 100_000), "f4")]}
    back = peer.proxy("Echo").same(value)
    assert same(back["a"], value["a"]) and same(back["b"][2], value["b"][2]) and back["b"][:2] == [1, "two"]
    assert peer.proxy("Echo").two()["y"][0].sum() == 4
    assert numpy.array_equal(peer.proxy("Echo").add(numpy.arange(4), numpy.ones(4)), [1, 2, 3, 4])


def test_what_is_not_in_c_order_is_copied_and_arrives_in_it(echo):
    _, peer, _ = echo
    base = numpy.arange(300_000, dtype="i4").reshape(500, 600)
    repeated = numpy.broadcast_to(base[0], (9, 600))
    for array in (base[::2], base[:, 1:7], base.T, base[::-1], numpy.asfortranarray(base), repeated):
        back = peer.proxy("Echo").same(array)
        assert back.flags.c_contiguous and numpy.array_equal(back, array) and back.dtype == array.dtype


@pytest.mark.parametrize(
    "array",
    [
        numpy.array([object()]),
        numpy.zeros(2, [("a", "i4"), ("b", "f8")]),
        numpy.zeros(2, "V3"),
        numpy.ma.masked_array([1, 2], [True, False]),
    ],
    ids=["objects", "fields", "void", "masked"],
)
def test_arrays_of_other_items_are_refused_before_anything_is_sent(echo, array):
    a, peer, _ = echo
    peer.connect().result()
    before = peer.info()["counters"]["calls"]
    with pytest.raises(slime.InvalidArgument, match="cannot be sent: .*travel"):
        peer.proxy("Echo").same([1, array])
    assert peer.info()["counters"]["calls"] == before


def test_a_handlers_result_that_cannot_travel_is_told(echo):
    _, peer, _ = echo
    with pytest.raises(slime.Internal, match="result of Echo.bad cannot be sent: arrays of object"):
        peer.proxy("Echo").bad()


def test_long_bytes_go_beside_the_message_and_stay_bytes(echo):
    _, peer, _ = echo
    peer.connect().result()
    long = bytes(range(256)) * 4096
    for value in (long, bytearray(long), memoryview(long), memoryview(long)[::2]):
        copied = peer.info()["counters"]["copied_bytes"]
        assert peer.proxy("Echo").same(value) == bytes(value)
        assert peer.info()["counters"]["copied_bytes"] == copied
    short = b"x" * (_attachments.BYTES - 1)
    assert peer.proxy("Echo").same(short) == short and peer.proxy("Echo").same([long]) == [long]


def test_received_arrays_are_writable_views_of_the_receivers_own_memory(echo):
    _, peer, _ = echo
    array = numpy.ones(100_000)
    back = peer.proxy("Echo").double(array)
    assert back.flags.writeable and (back == 2).all() and (array == 1).all()
    back += 1
    assert (back == 3).all()


def test_async_callers_and_async_handlers(echo):
    _, peer, _ = echo

    async def run():
        arrays = [numpy.full(50_000, i) for i in range(8)]
        proxy = peer.async_proxy("Echo")
        return arrays, await asyncio.gather(*(proxy.later(each) for each in arrays))

    arrays, back = asyncio.run(run())
    assert all(same(x, y) for x, y in zip(arrays, back))


def test_agents_whose_callers_make_progress(make_agent):
    b = make_agent("b")
    b.serve(Echo())
    a = make_agent("a", progress=slime.Progress.CALLER)
    array = numpy.arange(MIB)
    assert same(a.peer(b.address).proxy("Echo").same(array), array)


def test_proxies_of_any_provider(make_agent, nanoctrl):
    b = make_agent("b", ctrl_url=nanoctrl)
    b.serve(Echo())
    a = make_agent("a", ctrl_url=nanoctrl)
    array = numpy.arange(MIB)
    assert same(a.proxy("Echo").same(array), array)
    assert same(a.proxy("Echo", idempotent=True).same(array), array)


def test_calls_that_carry_more_and_one_way_calls_lend_arrays_too(echo):
    a, peer, b = echo
    array = numpy.arange(300_000)
    assert same(peer.call("Echo", "same", array, metadata={"k": "v"}).result(), array)
    future = peer.with_timing().call("Echo", "big", 3, into=(into := numpy.empty(3, "u8")))
    assert future.result().tolist() == into.tolist() == [0, 1, 2] and slime.timing_of(future).split
    a.add_client_interceptor(slime.Interceptor())
    assert same(peer.call("Echo", "same", array).result(), array)

    came = queue.Queue()

    class Sink:
        @slime.method
        def put(self, value):
            came.put(value)

    b.serve(Sink())
    peer.one_way("Sink", "put", array).result()
    assert same(came.get(timeout=10), array)


def test_long_bytes_reach_a_handler_of_cpp_that_takes_bytes(make_agent, start):
    server = start(program("slime", "cli"), "bench-server", '{"provider": "tcp"}')
    peer = make_agent("a", provider="tcp").peer(server.line().split()[-1])
    for long in (bytes(range(256)) * 4096, bytearray(100_000)):
        assert peer.call("bench", "echo", long).result() == long


# ---- memory of Slime's own


def test_regions_and_arrays_in_them_are_lent_as_they_are(echo):
    a, peer, b = echo
    array = a.empty((4, 100_000), "f4", slime.Rights.REMOTE_READ)
    array[:] = numpy.arange(100_000)
    assert same(peer.proxy("Echo").same(array), array)
    assert same(peer.proxy("Echo").same(array[2, 5:50_000]), array[2, 5:50_000])
    region = slime.region_of(array)
    back = peer.proxy("Echo").same(region)
    assert isinstance(back, slime.Attachment) and back.dtype is None and bytes(back) == array.tobytes()
    part = peer.proxy("Echo").same(memoryview(region)[8 : 8 + MIB])
    assert part == array.tobytes()[8 : 8 + MIB]
    local = a.empty(100_000, "i4")  # no peer may look it up: lent for this one call
    assert same(peer.proxy("Echo").same(local), local)


def test_into_names_memory_that_the_result_is_read_into(echo):
    a, peer, _ = echo
    for memory in (numpy.empty(MIB, "<u8"), a.empty(MIB, "<u8"), numpy.empty(2 * MIB, "<u8")):
        back = peer.call("Echo", "big", MIB, into=memory).result()
        assert back.ctypes.data == memory.ctypes.data and back.shape == (MIB,)
        assert (memory[:MIB] == numpy.arange(MIB)).all()
    region = a.allocate(8 * MIB)
    back = peer.call("Echo", "big", MIB, into=[region]).result()
    assert back.ctypes.data == region.address
    x, y = numpy.empty(3, "i4"), numpy.empty((2, 2))
    both = peer.call("Echo", "two", into=[x, y]).result()
    assert both["x"].ctypes.data == x.ctypes.data and (x == [0, 1, 2]).all() and (y == 1).all()
    buffer = bytearray(8 * 100)
    peer.call("Echo", "big", 100, into=buffer).result()
    assert numpy.frombuffer(buffer, "<u8")[99] == 99


def test_into_what_cannot_take_it_is_refused(echo):
    _, peer, _ = echo
    small = numpy.full(10, 7, "<u8")
    with pytest.raises(slime.InvalidArgument, match="room"):
        peer.call("Echo", "big", 1000, into=small).result()
    assert (small == 7).all()
    with pytest.raises(slime.PermissionDenied):
        peer.call("Echo", "big", 10, into=bytes(80))
    with pytest.raises(slime.InvalidArgument, match="contiguous"):
        peer.call("Echo", "big", 10, into=numpy.empty(20, "<u8")[::2])
    with pytest.raises(slime.InvalidArgument, match="`into` names an array of object"):
        peer.call("Echo", "big", 10, into=numpy.empty(2, object))


# ---- large ones


def test_64_mib_there_and_back(echo):
    _, peer, _ = echo
    array = numpy.random.default_rng(1).integers(0, 1 << 60, 8 * MIB, "u8")
    assert numpy.array_equal(peer.call("Echo", "same", array, timeout=60).result(), array)


@pytest.mark.skipif(not os.environ.get("SLIME_SOAK"), reason="a GiB: scripts/test.sh --soak, or SLIME_SOAK=1")
def test_a_gib_there_and_back(echo):
    _, peer, _ = echo
    array = numpy.arange(128 * MIB, dtype="u8")
    back = peer.call("Echo", "same", array, timeout=120).result()
    assert numpy.array_equal(back, array)


# ---- peers that break the rules


@pytest.mark.parametrize(
    ("dtype", "shape", "what"),
    [
        ("|O", (1,), "attachment"),
        ("<f4", (3,), "refused"),
        ("<f4", (2**63, 2), "refused"),
        ("V8,O", (1,), "attachment"),
        ("torch.load", (1,), "attachment"),
    ],
)
def test_wrong_types_of_a_peer_harm_nobody(echo, dtype, shape, what):
    import msgpack

    _, peer, _ = echo
    beside = slime._slime.AttachedBody()
    data = beside.add(b"12345678", None, dtype, shape)
    body = msgpack.packb([msgpack.ExtType(1, data)])
    future = peer.raw().call_attached("Echo", "describe", body, beside, None, _attachments.unpack_reply)
    if what == "refused":
        with pytest.raises(slime.InvalidArgument, match="an array of shape"):
            future.result()
    else:
        assert future.result()[0].endswith("Attachment")


def test_an_index_that_is_not_there_is_refused(echo):
    import msgpack

    _, peer, _ = echo
    body = msgpack.packb([msgpack.ExtType(1, b"\7\0\0\0")])
    with pytest.raises(slime.InvalidArgument, match="did not come"):
        peer.raw().call("Echo", "same", body, None, _attachments.unpack_reply).result()
