import array
import gc
import mmap
import weakref

import numpy
import pytest

import slime
from conftest import peer_and_region

Rights = slime.Rights


def read_back(a, b, region, size):
    """What a peer sees in `region`, which belongs to b."""
    b.publish("seen", region)
    peer = a.peer(b.address)
    local = a.allocate(size)
    peer.read(slime.Copy(local, 0, peer.region("seen"), 0, size)).result()
    return bytes(memoryview(local))


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(b"0123456789abcdef"),
        b"0123456789abcdef",
        memoryview(bytearray(b"0123456789abcdef")),
        array.array("B", b"0123456789abcdef"),
        numpy.frombuffer(b"0123456789abcdef", "uint32").copy(),
        numpy.asfortranarray(numpy.frombuffer(b"048c159d26ae37bf", "uint8").reshape(4, 4)),
    ],
    ids=["bytearray", "bytes", "memoryview", "array", "numpy", "fortran"],
)
def test_peers_see_any_contiguous_buffer(pair, buffer):
    a, b, _ = pair
    region = b.register_memory(buffer, Rights.REMOTE_READ)
    assert region.length_bytes == len(region) == 16
    # In the order of memory, whatever the order of axes: 'A' is that.
    expected = memoryview(buffer).tobytes("A")
    assert read_back(a, b, region, 16) == expected


def test_an_mmap_can_be_registered(pair):
    a, b, _ = pair
    with mmap.mmap(-1, 4096) as memory:
        memory[:4] = b"mmap"
        with b.register_memory(memory, Rights.REMOTE_READ) as region:
            assert read_back(a, b, region, 4) == b"mmap"


def test_an_object_with_array_interface_can_be_registered(pair):
    a, b, _ = pair

    class Foreign:
        def __init__(self):
            self._array = numpy.arange(4, dtype="int16")
            self.__array_interface__ = self._array.__array_interface__

    region = b.register_memory(Foreign(), Rights.REMOTE_READ)
    assert read_back(a, b, region, 8) == numpy.arange(4, dtype="int16").tobytes()


def test_a_dlpack_tensor_can_be_registered(pair):
    a, b, _ = pair

    class Tensor:
        def __init__(self, array):
            self._array = array

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self._array.__dlpack__(**options)

    region = b.register_memory(Tensor(numpy.arange(4, dtype="float32")), Rights.REMOTE_READ)
    assert read_back(a, b, region, 16) == numpy.arange(4, dtype="float32").tobytes()
    with pytest.raises(slime.InvalidArgument, match="contiguous"):
        b.register_memory(Tensor(numpy.arange(16, dtype="float32")[::2]))


def test_memory_of_a_device_is_refused_with_a_reason(make_agent):
    class CudaTensor:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **options):
            raise AssertionError("not asked for")

    class CudaArray:
        __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (4096, False), "version": 3}

    agent = make_agent()
    for tensor in (CudaTensor(), CudaArray()):
        with pytest.raises(slime.Unimplemented, match="host memory"):
            agent.register_memory(tensor)


def test_a_torch_tensor_can_be_registered(pair):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b, _ = pair
    tensor = torch.arange(8, dtype=torch.float32)
    region = b.register_memory(tensor, Rights.READ_WRITE)
    assert read_back(a, b, region, 32) == tensor.numpy().tobytes()
    with pytest.raises(slime.InvalidArgument, match="contiguous"):
        b.register_memory(torch.zeros(8, 8).t()[1:3, 2:5])
    with pytest.raises(slime.InvalidArgument, match="detach"):
        b.register_memory(torch.zeros(8, requires_grad=True))


@pytest.mark.parametrize(
    "buffer, reason",
    [
        (numpy.arange(16)[::2], "contiguous"),
        (numpy.zeros((4, 4))[:, 1:3], "contiguous"),
        (memoryview(bytearray(16))[::2], "contiguous"),
        (numpy.array([{}, []], dtype=object), "Python objects"),
        ("text", "no memory"),
        ([1, 2], "no memory"),
        (None, "no memory"),
    ],
)
def test_what_is_not_a_run_of_bytes_is_refused(make_agent, buffer, reason):
    with pytest.raises(slime.InvalidArgument, match=reason):
        make_agent().register_memory(buffer)


def test_readonly_memory_is_never_written(pair):
    a, b, _ = pair
    for rights in (Rights.REMOTE_WRITE, Rights.READ_WRITE):
        with pytest.raises(slime.PermissionDenied):
            a.register_memory(b"bytes", rights)
    _, peer, remote = peer_and_region(a, b, 16)
    constant = a.register_memory(b"constant bytes!!")
    with pytest.raises(slime.PermissionDenied):
        peer.read(slime.Copy(constant, 0, remote, 0, 16))
    peer.write(slime.Copy(constant, 0, remote, 0, 16)).result()  # reading from it is fine


def test_a_region_pins_what_it_registers_until_it_is_closed(make_agent):
    buffer = bytearray(64)
    region = make_agent().register_memory(buffer)
    with pytest.raises(BufferError):
        buffer.append(0)  # would move the bytes
    region.close()
    buffer.append(0)
    region.close()  # idempotent
    assert region.closed


def test_a_registered_array_lives_as_long_as_its_region(make_agent):
    data = numpy.zeros(16)
    gone = weakref.ref(data)
    region = make_agent().register_memory(data)
    del data
    gc.collect()
    assert gone() is not None
    region.close()
    gc.collect()
    assert gone() is None


def test_an_agents_end_closes_its_regions_but_keeps_their_memory(make_agent):
    agent = make_agent()
    data = agent.empty(1 << 16, "uint8")
    agent.close()
    data[:] = 7
    assert int(data.sum()) == 7 * (1 << 16)


def test_an_array_in_slimes_memory_outlives_its_region(make_agent):
    agent = make_agent()
    data = agent.empty((8, 1024), "float32", Rights.READ_WRITE)
    assert data.shape == (8, 1024) and data.dtype == numpy.float32 and not data.any()
    view = data[3, 5:9]
    region = slime.region_of(view)
    assert region is slime.region_of(data) and region.rights == Rights.READ_WRITE
    region.close()
    with pytest.raises(BufferError):
        memoryview(region)  # no new views
    view[:] = 1  # memory stays mapped until the last view is gone
    del data, region
    gc.collect()
    view[:] = 2
    assert view.tolist() == [2, 2, 2, 2]


def test_empty_as_a_function_and_of_odd_shapes(make_agent):
    agent = make_agent()
    assert slime.empty(3, "int8", agent=agent).shape == (3,)
    assert agent.empty((0, 5)).shape == (0, 5)
    assert agent.empty(()).shape == ()
    with pytest.raises(slime.InvalidArgument):
        agent.empty(3, object)


def test_a_foreign_array_is_in_no_region():
    with pytest.raises(slime.InvalidArgument):
        slime.region_of(numpy.zeros(3))


def test_regions_do_not_leak(make_agent):
    agent = make_agent()
    buffers = [numpy.zeros(1024) for _ in range(50)]
    gone = [weakref.ref(b) for b in buffers]
    regions = [agent.register_memory(b) for b in buffers]
    del buffers
    regions.clear()  # never closed by hand: dropping is enough
    gc.collect()
    assert not any(reference() is not None for reference in gone)


def free_huge_pages():
    """(bytes of one, those that are free): of the machine's pool."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        told = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return told.get("Hugepagesize", 0) * 1024, told.get("HugePages_Free", 0) - told.get("HugePages_Rsvd", 0)


def test_more_huge_pages_than_the_pool_has_are_refused_with_what_to_do(pair):
    a, _, _ = pair
    page, free = free_huge_pages()
    if page == 0:
        pytest.skip("this kernel has no huge pages")
    with pytest.raises(slime.ResourceExhausted, match="sysctl vm.nr_hugepages="):
        a.allocate(page * (free + (1 << 20)), pages=slime.Pages.HUGE)


def test_memory_of_huge_pages_is_memory_like_any_other(pair):
    a, b, _ = pair
    page, free = free_huge_pages()
    if page == 0 or free < 1:
        pytest.skip("this machine's pool has no free huge page; as root: sysctl vm.nr_hugepages=16")
    array_of_b = b.empty(1000, "uint8", Rights.REMOTE_READ, slime.Pages.HUGE)
    array_of_b[:] = 7
    region = slime.region_of(array_of_b)
    assert region.length_bytes == 1000
    assert read_back(a, b, region, 1000) == b"\x07" * 1000
