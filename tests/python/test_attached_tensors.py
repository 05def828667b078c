"""Tensors of torch in calls."""

import sys

import numpy
import pytest

import slime
from conftest import wait_until

MIB = 1 << 20


def test_tensors_stay_tensors(echo):
    torch = pytest.importorskip("torch")
    _, peer, _ = echo
    proxy = peer.proxy("Echo")
    for name in ("float32", "bfloat16", "float16", "float64", "int64", "uint8", "bool", "complex64"):
        dtype = getattr(torch, name)
        for shape in ((3, 5), (300, 700), (), (0, 2)):
            tensor = torch.ones(shape).to(dtype)
            back = proxy.same(tensor)
            assert back.dtype is dtype and back.shape == tensor.shape and torch.equal(back, tensor)
    turned = torch.arange(600_000).reshape(600, 1000).T
    assert torch.equal(proxy.same(turned), turned)
    needs_gradients = torch.ones(100_000, requires_grad=True)
    assert torch.equal(proxy.same(needs_gradients), needs_gradients.detach())
    room = torch.empty(MIB, dtype=torch.int64)
    peer.call("Echo", "big", MIB, into=room).result()
    assert room[-1] == MIB - 1
    received = proxy.same(torch.ones(MIB))
    assert torch.equal(proxy.same(received), received)
    slime.release(received)
    assert not received.any()
    with pytest.raises(slime.InvalidArgument, match="cannot be sent: .*dense"):
        proxy.same(torch.ones(3, 3).to_sparse())


def test_a_tensor_arrives_as_an_array_where_there_is_no_torch(echo, monkeypatch):
    torch = pytest.importorskip("torch")
    _, peer, _ = echo
    tensor = torch.arange(100_000)
    future = peer.call("Echo", "same", tensor)
    wait_until(future.done)
    monkeypatch.setitem(sys.modules, "torch", None)
    back = future.result()
    assert back.dtype == "int64" and back[-1] == 99_999
