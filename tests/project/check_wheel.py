"""Runs what a wheel has installed: agents, a call, a read into numpy, the programs. For a Python whose environment was
made for this; with the folder that holds the sources, of which nothing may be used.

    python -I check_wheel.py SOURCE_FOLDER
"""

import pathlib
import subprocess
import sys

import numpy

import slime


class Calc:
    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b


def check(holds, what):
    if not holds:
        sys.exit(f"check_wheel: {what}")


def call_and_read():
    size = 1 << 20
    with slime.PeerAgent("server") as server, slime.PeerAgent("client") as client:
        server.serve(Calc())
        data = server.empty(size, "uint8", slime.Rights.READ_WRITE)
        data[:] = numpy.arange(size, dtype=numpy.uint64) * 7 % 251
        server.publish("data", data)
        peer = client.peer(server.address)
        check(peer.proxy("Calc").add(40, 2) == 42, "a call answered wrongly")
        memory = numpy.zeros(size, numpy.uint8)
        with client.register_memory(memory) as local:
            peer.read(slime.Copy(local, 0, peer.region("data"), 0, size)).wait()
        check(numpy.array_equal(memory, data), "a read brought wrong bytes")


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    environment = pathlib.Path(sys.prefix)
    check(environment in pathlib.Path(slime.__file__).parents, f"slime came from {slime.__file__}")
    call_and_read()
    used = {line.split(maxsplit=5)[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()}
    check(not any(file.startswith(f"{source}/") for file in used), f"a file of {source} is in use")
    for program in ("slime", "nanoctrl", "slime-cache"):
        done = subprocess.run([environment / "bin" / program, "--help"], capture_output=True, text=True)
        check(done.returncode == 0 and "Usage:" in done.stdout, f"{program} --help: {done.stdout}{done.stderr}")
    print("the wheel works: agents, a call, a read, the programs")


if __name__ == "__main__":
    main()
