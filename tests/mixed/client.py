"""The client of the mixed cells, like tests/matrix/client.py: changed features, discovery and the cache.

client.py ADDRESS PROVIDER CTRL_URL SCOPE SERVER: reads names of features, and prints a line of JSON for each.
client.py --greet ADDRESS PROVIDER: calls the server once, and prints JSON: ok, text, seconds.
client.py --join CTRL_URL SCOPE: registers, sends heartbeats, and prints JSON: ok, text, seconds.
Runs with the package of either version, so it uses only features of both.
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
import time
import zlib

import slime

import earlier  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "matrix"))
import checks  # noqa: E402
from checks import PATIENCE, SOON, Run, counter, error_of, eventually, expect, expect_equal, feature  # noqa: E402

NOTIFICATIONS = 6000  # exceeds the queue of either version, so that the sender is held up
IN_FLIGHT = 3000
LARGE = 1 << 20
CACHE = "cache:0"


def peer_by_name(run: Run) -> slime.Peer:
    return run.start(registered=True).peer(run.place.victim).with_timeout(SOON)


@feature
def by_name(run: Run) -> None:
    peer = peer_by_name(run)
    expect_equal(peer.call("Mixed", "add", 40, 2).result(SOON), 42, "the sum")
    agent = run.start(registered=True)
    expect_equal(agent.proxy("Mixed").add(1, 2), 3, "the sum of any server")
    expect(run.place.victim in [each["name"] for each in agent.list_peers()], "nanoctrl lists the server")


@feature
def waiting_requests(run: Run) -> None:
    bodies = [bytes([i]) * LARGE for i in range(1, 9)]
    calls = [run.peer.call("Mixed", "held_sum", body) for body in bodies]
    late = run.peer.call("Mixed", "held_sum", bytes(LARGE), timeout=0.3 * PATIENCE)
    error_of(late, slime.DeadlineExceeded, "a request whose handler, or whose bytes, wait")
    expect_equal(run.peer.call("Mixed", "add", 1, 2).result(SOON), 3, "a small call meanwhile")
    run.peer.call("Requests", "open").result(SOON)
    sums = [call.result(SOON) for call in calls]
    expect_equal(sums, [[LARGE, zlib.crc32(body)] for body in bodies], "what the handlers got")
    eventually(lambda: counter(run.peer, "lent_buffers") == 0, "nothing is lent")


@feature
def late_answers(run: Run) -> None:
    run.peer.connect().result(SOON)
    held = [run.peer.call("Mixed", "held_bytes", LARGE, seed, timeout=0.3 * PATIENCE) for seed in (1, 2, 3)]
    for call in held:
        error_of(call, slime.DeadlineExceeded, "an answer that comes too late")
    before = run.peer.info()["connection"]
    run.peer.call("Answers", "open").result(SOON)
    for seed in (7, 8):
        answer = run.peer.call("Mixed", "held_bytes", LARGE, seed).result(SOON)
        expect(bytes(answer) == bytes([seed]) * LARGE, "the bytes of the next answer")
    expect_equal(run.peer.info()["connection"], before, "the connection")


class Back:
    @slime.method
    def twice(self, x: int) -> int:
        return 2 * x


@feature
def notifications(run: Run) -> None:
    run.agent.serve(Back())
    other = run.peer_of(run.start())  # on a connection without notifications
    local, area = run.agent.empty(64, "uint8"), run.peer.region("area")
    bound = 4 * SOON
    waiting: collections.deque = collections.deque()
    opened = False
    for number in range(NOTIFICATIONS):
        waiting.append(run.peer.write_with_imm(slime.Copy(local, 0, area, 0, 1), number, timeout=bound))
        if len(waiting) < IN_FLIGHT:
            continue
        if not opened and not waiting[0].wait_done(1.0):  # the server accepts no more
            other.call("Notifications", "open").result(SOON)
            opened = True
        waiting.popleft().result(bound)
    other.call("Notifications", "open").result(SOON)
    for each in waiting:
        each.result(bound)
    count, in_order, failures = other.call("Notified", "wait_for", NOTIFICATIONS, timeout=bound).result(bound)
    expect_equal(failures, [], "the handler's calls of the sender")
    expect_equal(count, NOTIFICATIONS, "notifications")
    expect(in_order, "they came in order")


@feature
def plain_stream(run: Run) -> None:
    """Opens a stream of a plain method: servers of one version refuse it, others run it without a message."""
    try:
        with run.peer.stream("Mixed", "add", 1, 2, timeout=SOON) as stream:
            expect_equal(list(stream), [], "the messages")
    except slime.InvalidArgument:
        pass


@feature
def cache(run: Run) -> None:
    agent = run.start(registered=True)
    client = slime.CacheClient(agent, CACHE)
    objects = {f"{run.key}-{size}": bytes([size % 251]) * size for size in (0, 1, 4096, 300_000, 3 << 20)}
    for key, value in objects.items():
        client.put("mixed", key, value, ttl=60)
        expect(client.get("mixed", key) == value, f"{key} comes back")
    got = client.get_many("mixed", [*objects, "nothing"])
    expect(got == [*objects.values(), None], "many come back")
    expect_equal([str(each) for each in client.put_many("mixed", objects, replace=True)], ["None"] * 5, "outcomes")
    error_of_call(lambda: client.get("mixed", "nothing"), slime.NotFound)


def error_of_call(call, kind: type) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def greet(address: str, provider: str) -> None:
    began = time.monotonic()
    try:
        with slime.PeerAgent(provider=provider) as agent:
            total = agent.peer(address).call("Mixed", "add", 40, 2, timeout=SOON).result(SOON)
        said = {"ok": total == 42, "text": f"40 + 2 is {total!r}"}
    except slime.Error as error:
        said = {"ok": False, "text": str(error)}
    print(json.dumps({**said, "seconds": time.monotonic() - began}))


def join(ctrl: str, scope: str) -> None:
    """Returns whether nanoctrl accepts an agent of this version, and its heartbeats."""
    began = time.monotonic()
    try:
        with slime.PeerAgent("joins", ctrl_url=ctrl, scope=scope, heartbeat=0.1) as agent:
            registry = lambda: agent.info()["registry"]  # noqa: E731
            eventually(lambda: registry()["state"] != "registered" or registry()["heartbeats"] > 1, "it has beaten")
            error = registry()["error"]
        text = error["text"] if error else ""
    except slime.Error as error:
        text = str(error)
    print(json.dumps({"ok": not text, "text": text, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--greet"]:
        greet(*sys.argv[2:])
    elif sys.argv[1:2] == ["--join"]:
        join(*sys.argv[2:])
    else:
        checks.main()
