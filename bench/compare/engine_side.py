"""One end of a pair of engines.py: `engine_side.py ROLE OPTIONS FD`, in the engine's own Python.

Takes commands on the pipe FD (multiprocessing.Pipe), JSON objects, and answers each with one; ends
with the pipe. An answer with "error" says why a command was not carried out. The role is "target" or
"initiator".
"""

import contextlib
import gc
import json
import resource
import signal
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection

import numpy

import engine_kinds

PREPARED = 5  # times that a list is prepared to time it
MOST_RUNS = 20_000


class Endless(BaseException):
    """Raised by a signal, anywhere in the engine's Python, if a transfer does not end. Not an
    Exception, so that the engine does not catch it."""


def raise_endless(*_):
    raise Endless


def pattern(seed, count):
    """Returns bytes that differ by place and seed."""
    words = numpy.arange(-(-count // 8), dtype="uint64") * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(seed)
    return words.view("uint8")[:count]


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Side:
    def __init__(self, role, options):
        self.engine = engine_kinds.KINDS[options["kind"]](role, options)
        self.transfer = None
        self.size = self.count = 0
        self.receiver = None

    # ----------------------------------------------------------------------------- of both ends

    def address(self, _):
        return self.engine.address()

    def fill(self, command):
        """Fills a part of the memory with the pattern of a seed, or with zeros."""
        count, at = command["bytes"], command.get("at", 0)
        self.engine.memory[at:at + count] = pattern(command["seed"], count) if command["seed"] else 0
        return {}

    def check(self, command):
        """Compares a part of the memory with blocks of a pattern in reverse order."""
        size, count, at = command["size"], command["count"], command.get("at", 0)
        got = self.engine.memory[at:at + size * count].reshape(count, size)
        return {"same": bool((got == pattern(command["seed"], size * count).reshape(count, size)[::-1]).all())}

    def processor(self, _):
        return {"seconds": processor_seconds()}

    # ----------------------------------------------------------------------------- the target's

    def receive(self, command):
        """Receives messages into blocks in reverse order, again and again, until stop()."""
        there = [number * command["size"] for number in range(command["count"])][::-1]
        self.receiver = Receiver(self.engine, there, command["size"])
        return {}

    def stop(self, _):
        self.receiver, receiver = None, self.receiver
        receiver.stop()
        return {}

    # -------------------------------------------------------------------------- the initiator's

    def connect(self, command):
        self.engine.connect(command["address"])
        return {}

    def reconnect(self, command):
        self.transfer = None  # gives up the unfinished transfer
        self.engine.reconnect(command["address"])
        return {}

    def prepare(self, command):
        """Prepares a list, moves it at least once, and times the preparation: ns for each block."""
        self.size, self.count = command["size"], command["count"]
        here = [number * self.size for number in range(self.count)]
        times = command.get("times", 1)  # how often each block is in the list
        # The remote blocks are in reverse order, so that the engine cannot merge them into one
        # range.
        self.transfer = self._transfer(command["operation"], here * times)
        self._runs(command["warm_s"], 1)
        if self.transfer.renew is None:
            return {}
        times = [self.transfer.renew() for _ in range(PREPARED)]
        prepared, plain = (statistics.median(column) / self.count * 1e9 for column in zip(*times))
        return {"prepared_ns": prepared, "plain_ns": plain}

    def _transfer(self, operation, here):
        there = here[::-1]
        if operation != "DUAL":
            return self.engine.transfer(operation, here, there, self.size)
        # The bytes of each direction lie behind those that go the other way.
        behind = self.size * self.count
        return engine_kinds.both(
            self.engine.transfer("WRITE", here, [behind + at for at in there], self.size),
            self.engine.transfer("READ", [behind + at for at in here], there, self.size))

    def loop(self, command):
        """Moves the list again and again for some seconds, at least `least` times."""
        before = processor_seconds()
        times = self._runs(command["seconds"], command["least"])
        spent = processor_seconds() - before
        times.sort()
        return {"runs": len(times), "p50_us": statistics.median(times) * 1e6,
                "p99_us": times[min(len(times) - 1, int(len(times) * 0.99))] * 1e6, "processor_s": spent}

    def _runs(self, seconds, least):
        times, run, now = [], self.transfer.run, time.perf_counter
        gc.disable()
        end = now() + seconds
        while (len(times) < least or now() < end) and len(times) < MOST_RUNS:
            begin = now()
            run()
            times.append(now() - begin)
        gc.enable()
        return times

    def once(self, command):
        """Moves the list once. Returns how and when that ended, by a clock that the processes
        share."""
        begin = time.monotonic()
        signal.signal(signal.SIGALRM, raise_endless)
        signal.setitimer(signal.ITIMER_REAL, command["bound_s"])
        try:
            self.transfer.run()
            how, text = "done", ""
        except engine_kinds.Refused as refused:
            how, text = "error", str(refused)
        except Endless:
            how, text = "no end", ""
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return {"how": how, "text": text, "begin": begin, "end": time.monotonic()}


class Receiver:
    """A thread that receives messages."""

    def __init__(self, engine, there, length):
        self._over = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(engine, there, length), daemon=True)
        self._thread.start()

    def _run(self, engine, there, length):
        try:
            engine.receive(there, length, self._over.is_set)
        except Exception as failure:  # told by stop(); engines raise types of their own
            self._failure = failure

    def stop(self):
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def serve(side, channel):
    while True:
        command = json.loads(channel.recv_bytes())
        try:
            answer = getattr(side, command["do"])(command)
        # engines raise types of their own; the other process gets the text
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.send_bytes(json.dumps(answer).encode())


def main(role, options, number):
    channel = Connection(int(number))
    try:
        side = Side(role, json.loads(options))
    except Exception as error:  # engines raise types of their own, or a package is missing
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        engine_kinds.leave(1)
    channel.send_bytes(b'{"ready": true}')
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        serve(side, channel)
    engine_kinds.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
