"""Tests an installed wheel: agents, a call, a read into numpy, the programs, NIXL's plugin. Runs in a fresh Python
environment. The argument is the folder with the sources, which must not be used.

    python -I check_wheel.py SOURCE_FOLDER
"""

import os
import pathlib
import subprocess
import sys
import tempfile

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
            peer.read(slime.Copy(local, 0, peer.region("data"), 0, size)).result()
        check(numpy.array_equal(memory, data), "a read brought wrong bytes")


def exported_by(library):
    """Returns the exported names of a library."""
    command = ["readelf", "--dyn-syms", "--wide", library]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {row[7] for row in rows if len(row) >= 8 and row[0].endswith(":") and row[6] not in ("UND", "Ndx")}


def check_nixl_plugin(environment):
    plugin = pathlib.Path(slime.__file__).parent / "nixl/libplugin_SLIME.so"
    names = exported_by(plugin)
    check(names == {"nixl_plugin_init", "nixl_plugin_fini"}, f"{plugin} exports {sorted(names)}")
    with tempfile.TemporaryDirectory() as folder:
        # A stand-in for NIXL: the program looks only for this.
        site = pathlib.Path(folder, "site")
        for name in ("nixl_cu12", "nixl_cu12-1.5.1.dist-info", ".nixl_cu12.mesonpy.libs/plugins", "nixl_cu12.libs"):
            (site / name).mkdir(parents=True)
        (site / "nixl_cu12/__init__.py").touch()
        (site / "nixl_cu12-1.5.1.dist-info/METADATA").write_text("Name: nixl-cu12\nVersion: 1.5.1\n")
        settings = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": f"{folder}/cache"}
        command = [environment / "bin/slime", "nixl-plugin-dir"]
        done = subprocess.run(command, env=settings, capture_output=True, text=True)
        check(done.returncode == 0 and not done.stderr, f"slime nixl-plugin-dir: {done.stdout}{done.stderr}")
        link = pathlib.Path(done.stdout.strip(), plugin.name)
        check(link.resolve() == plugin.resolve(), f"{link} is not {plugin}")
        # Load from this path, as NIXL does: the wheel's libraries must be found relative to it.
        load = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW).nixl_plugin_init"
        done = subprocess.run([sys.executable, "-I", "-c", load, link], capture_output=True, text=True)
        check(done.returncode == 0, f"{link} does not load: {done.stderr}")


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    environment = pathlib.Path(sys.prefix)
    check(environment in pathlib.Path(slime.__file__).parents, f"slime came from {slime.__file__}")
    call_and_read()
    used = {line.split(maxsplit=5)[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()}
    check(not any(file.startswith(f"{source}/") for file in used), f"a file of {source} is in use")
    for program in ("slime", "nanoctrl", "slime-cache", "dlslime-cache", "transfer_bench"):
        done = subprocess.run([environment / "bin" / program, "--help"], capture_output=True, text=True)
        told = done.returncode == 0 and "usage:" in done.stdout.lower()
        check(told, f"{program} --help: {done.stdout}{done.stderr}")
    check_nixl_plugin(environment)
    print("the wheel works: agents, a call, a read, the programs, NIXL's plugin")


if __name__ == "__main__":
    main()
