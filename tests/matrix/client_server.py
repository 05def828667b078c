"""Features of the Python client: behaviour of servers, and bytes, like client_server.cc and client_bytes.cc."""

from __future__ import annotations

import collections
import os
import signal
import time
import zlib

import slime
from checks import PATIENCE, SOON, Run, counter, error_of, eventually, expect, expect_equal, feature


@feature
def limit_queue(run: Run) -> None:
    small = run.start_small(1, 2)
    enter = small.call("Small", "enter", run.key)
    run.await_count(f"entered:{run.key}", 1)
    waiting = [small.call("Small", "mark", run.key, text) for text in ("first", "second")]
    third = small.call("Small", "mark", run.key, "third")
    expect(not error_of(third, slime.ResourceExhausted, "one too many").maybe_executed, "not executed")
    run.ask("open", run.key)
    for each in (enter, *waiting):
        each.result(SOON)


@feature
def limit_running(run: Run) -> None:
    small = run.start_small(4, 8)
    first = small.call("Small", "enter_alone", run.key)
    run.await_count(f"entered:{run.key}", 1)
    second = small.call("Small", "enter_alone", run.key)
    small.call("Small", "mark", run.key, "another method beside it").result(SOON)
    expect_equal(run.ask("count", f"entered:{run.key}"), 1, "calls of it that run")
    run.ask("open", run.key)
    first.result(SOON)
    second.result(SOON)


@feature
def priorities(run: Run) -> None:
    small = run.start_small(1, 8)
    enter = small.call("Small", "enter", run.key)
    run.await_count(f"entered:{run.key}", 1)
    waiting = [small.call("Small", method, run.key, method) for method in ("mark_low", "mark", "mark_high")]
    # All requests have arrived: a request after them was served.
    expect_equal(small.health(), "serving", "health")
    run.ask("open", run.key)
    for each in (enter, *waiting):
        each.result(SOON)
    expect_equal(run.ask("notes", run.key), ["mark_high", "mark", "mark_low"], "the order")


@feature
def drain(run: Run) -> None:
    small = run.start_small(2, 8)
    enter = small.call("Small", "enter", run.key)
    run.await_count(f"entered:{run.key}", 1)
    drained = run.peer.call("Matrix", "drain_small", run.small_name, 15_000)
    eventually(lambda: small.health() == "draining", "health says that it drains")
    refused = small.call("Small", "mark", run.key, "x")
    expect(not error_of(refused, slime.Unavailable, "a call meanwhile").maybe_executed, "not executed")
    expect(not drained.done(), "the drain waits for what runs")
    run.ask("open", run.key)
    enter.result(SOON)
    drained.result(SOON)


@feature
def stuck_handler(run: Run) -> None:
    small = run.start_small(2, 8)
    stuck = small.call("Small", "enter", run.key)
    run.await_count(f"entered:{run.key}", 1)
    for _ in range(100):
        small.call("Small", "mark", run.key, "another method").result(SOON)
    began = time.monotonic()
    error_of(run.peer.call("Matrix", "drain_small", run.small_name, 50), slime.DeadlineExceeded, "the drain")
    expect(time.monotonic() - began < 5 * PATIENCE, "its bound holds")
    expect(not stuck.done(), "it still runs")
    run.ask("open", run.key)
    stuck.result(SOON)


@feature
def health(run: Run) -> None:
    expect_equal(run.peer.health(), "serving", "the server")
    expect_equal(run.peer.health("Matrix"), "serving", "a service")
    expect_equal(run.peer.health("Nobody"), "unknown", "another one")


@feature
def reflection(run: Run) -> None:
    methods = {
        (service["name"], method["name"]): method for service in run.peer.services() for method in service["methods"]
    }
    add = methods["Matrix", "add"]
    expect_equal([each["name"] for each in add["parameters"]], ["a", "b"], "its parameters")
    expect_equal(add["parameters"][1]["type"], "int", "the second one's type")
    expect_equal(add["result"], "int", "its result")
    expect_equal(add["doc"], "The sum.", "its doc")


@feature
def proxy_round_robin(run: Run) -> None:
    proxy = run.start(registered=True).proxy("Provider", SOON)
    answers = collections.Counter(proxy.who() for _ in range(12))
    expect(len(answers) >= 2 and run.place.victim in answers, f"both providers are called: {dict(answers)}")
    expect_equal(set(answers.values()), {12 // len(answers)}, "the share of each")


@feature
def proxy_idempotent(run: Run) -> None:
    agent = run.start(registered=True)
    try:
        agent.proxy("Matrix", SOON).flaky(f"{run.key}-once", 1)
        expect(False, "one that failed is not repeated")
    except slime.Unavailable as error:
        expect(error.maybe_executed, "it was executed")
    again = agent.proxy("Matrix", SOON, idempotent={"flaky"}, retry=slime.Retry(attempts=3))
    expect_equal(again.flaky(run.key, 2), 3, "executions")
    expect_equal(run.ask("count", f"{run.key}-once"), 1, "executions of the other")


@feature
def proxy_failover(run: Run) -> None:
    agent = run.start(registered=True)
    proxy = agent.proxy("Provider", SOON, idempotent=True)
    eventually(lambda: proxy.who() == run.place.victim, "the victim serves")
    os.kill(agent.peer(run.place.victim).proxy("Provider").pid(), signal.SIGKILL)
    for _ in range(20):
        expect(proxy.who() != run.place.victim, "another answers")


# -------------------------------------------------------------------------------------------- bytes


def bytes_of(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


@feature
def large_bodies(run: Run) -> None:
    # Sizes around the payload of a slot of 8 KiB, whatever the header takes.
    for size in (0, 1, 1 << 20, (16 << 20) + 1, *range(8192 - 128, 8192 + 9)):
        sent = bytes_of(size)
        expect(run.ask("echo_bytes", sent) == sent, f"{size} bytes come back")


@feature
def raw(run: Run) -> None:
    for size in (0, 1, 100, 8100, 9000, 1 << 20):
        sent = bytes_of(size)
        for method in ("raw_reverse", "raw_inline"):
            reply = run.peer.call_bytes("Matrix", method, sent).result(SOON)
            expect(isinstance(reply, memoryview) and reply == sent[::-1], f"{size} bytes come back from {method}")
        place = run.peer.call_bytes("Matrix", "raw_place", sent).result(SOON)
        expect(size == 0 or place == b"\0", "they lie at a multiple of 8")
    run.peer.one_way_bytes("Matrix", "raw_reverse", bytes_of(10)).result(SOON)


@feature
def raw_refused(run: Run) -> None:
    def refused(future: slime.Future, hint: str) -> None:
        error = error_of(future, slime.Unimplemented, hint)
        expect(not error.maybe_executed, "not executed")
        expect(hint in error.text, f"says why: {error.text}")

    for _ in range(2):  # the first call names the method, the second uses its number
        refused(run.peer.call("Matrix", "raw_reverse", b"x"), "takes bytes")
        refused(run.peer.call_bytes("Matrix", "add", b"xyz"), "takes arguments")
        run.peer.call_bytes("Matrix", "raw_reverse", b"").result(SOON)


@feature
def big_refused(run: Run) -> None:
    peer = run.peer_of(run.start())
    message = bytes(32 << 20)
    for _ in range(2):
        peer.send(5, message).result(SOON)
    error = error_of(peer.send(5, message), slime.ResourceExhausted, "a message that nobody takes")
    expect("inbox" in error.text, f"says why: {error.text}")
    expect_equal(peer.call("Matrix", "add", 1, 2).result(SOON), 3, "the next call")


@feature
def messages(run: Run) -> None:
    for size in (0, 10, 9000, 3 << 20):
        sent = bytes_of(size)
        relayed = run.peer.call("Matrix", "relay", 71, 72)
        run.peer.send(71, sent).result(SOON)
        back = run.peer.recv(72).result(SOON)
        relayed.result(SOON)
        expect(bytes(back) == sent[::-1], f"{size} bytes come back reversed")


@feature
def regions(run: Run) -> None:
    local = run.agent.empty(70_000, "uint8")
    area, fixed = run.peer.region("area"), run.peer.region("fixed")
    run.peer.read(slime.Copy(local, 8, fixed, 1000, 3000)).result(SOON)
    expect_equal(local[8:3008].tolist(), [(i * 7 + 3) & 0xFF for i in range(1000, 4000)], "the bytes of the server")
    sent = bytes_of(60_000)
    local[100:60_100] = list(sent)
    copies = [slime.Copy(local, 100, area, 4096, 40_000), slime.Copy(local, 40_100, area, 200_000, 20_000)]
    run.peer.write(copies).result(SOON)
    there = run.ask("peek", 4096, 40_000) + run.ask("peek", 200_000, 20_000)
    expect(there == sent, "the server sees what was written")


@feature
def region_refusals(run: Run) -> None:
    local = run.agent.empty(4096, "uint8")
    fixed = run.peer.region("fixed")
    error_of(run.peer.write(slime.Copy(local, 0, fixed, 0, 16)), slime.PermissionDenied, "a write to what is read-only")
    error_of(run.peer.read(slime.Copy(local, 0, fixed, 4090, 16)), slime.InvalidArgument, "a read beyond the end")
    try:
        run.peer.region("nowhere")
        expect(False, "an unknown region is not found")
    except slime.NotFound:
        pass
    run.peer.read(slime.Copy(local, 0, fixed, 0, 16)).result(SOON)


@feature
def notify(run: Run) -> None:
    local = run.agent.empty(64, "uint8")
    area = run.peer.region("area")
    number = zlib.crc32(run.key.encode())
    local[0] = 0x5A
    run.peer.write_with_imm(slime.Copy(local, 0, area, 300_000, 1), number).result(SOON)
    run.await_count(f"imm:{number}", 1)
    expect_equal(run.ask("peek", 300_000, 1), b"\x5a", "the byte that came before")


@feature
def atomics(run: Run) -> None:
    area, at = run.peer.region("area"), 512 << 10
    before = run.peer.fetch_add(area, at, 5).result(SOON)
    expect_equal(run.peer.fetch_add(area, at, 1).result(SOON), before + 5, "what it was")
    expect_equal(run.peer.compare_swap(area, at, before, 0).result(SOON), before + 6, "what is left alone")
    run.peer.compare_swap(area, at, before + 6, 40).result(SOON)
    expect_equal(run.peer.fetch_add(area, at, 0).result(SOON), 40, "what was stored")


class Back:
    @slime.method
    def twice(self, x: int) -> int:
        return 2 * x


@feature
def call_backs(run: Run) -> None:
    run.agent.serve(Back())
    calls = [run.peer.call("Matrix", "call_back", i) for i in range(50)]
    expect_equal([each.result(SOON) for each in calls], [2 * i for i in range(50)], "what came back")
    expect_equal(counter(run.peer, "requests"), 50, "requests on the one connection")
