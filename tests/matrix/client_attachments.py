"""Features of the Python client: attachments beside a body, like the second part of client_streams.cc."""

from __future__ import annotations

import weakref

import numpy

import slime
from checks import SOON, Run, counter, error_of, eventually, expect, expect_equal, feature


def bytes_of(size: int) -> numpy.ndarray:
    return numpy.arange(size, dtype="uint32").astype("uint8")


def echoes(run: Run, size: int) -> None:
    sent = bytes_of(size)
    back = run.peer.call("Attached", "same", sent).result(SOON)
    expect(numpy.array_equal(numpy.frombuffer(back, "uint8"), sent), f"{size} bytes come back")


@feature
def attach_small(run: Run) -> None:
    for size in (0, 1, 500, 3000):
        echoes(run, size)
    expect_equal(counter(run.peer, "pulled_bytes"), 0, "bytes that were read apart")


@feature
def attach_large(run: Run) -> None:
    echoes(run, (4 << 20) + 1)
    expect_equal(counter(run.peer, "copied_bytes"), 0, "bytes that were copied")


@feature
def attach_into(run: Run) -> None:
    sent = bytes_of(1 << 20)
    memory = run.agent.empty(2 << 20, "uint8")
    run.peer.call("Attached", "same", sent, into=memory[4096 : 4096 + len(sent)]).result(SOON)
    expect(numpy.array_equal(memory[4096 : 4096 + len(sent)], sent), "it lies where the caller said")
    refused = run.peer.call("Attached", "same", sent, into=run.agent.empty(1000, "uint8"))
    error_of(refused, slime.InvalidArgument, "what does not fit")


@feature
def attach_release(run: Run) -> None:
    sent = bytes_of(1 << 20)
    alive = weakref.ref(sent)
    expect_equal(run.peer.call("Attached", "size", sent).result(SOON), 1 << 20, "its size")
    del sent
    eventually(lambda: alive() is None, "nobody holds the memory")
    eventually(lambda: counter(run.peer, "lent_buffers") == 0, "nothing is lent")
