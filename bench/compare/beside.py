"""The programs that run beside Slime: finds, builds, starts and reads each of them."""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import typing

import programs
import rounds

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20

# Debian packages by peer, and what shows that a package is installed.
NEEDS = {
    "zeromq": {"libzmq3-dev": ("library", "libzmq"), "pkg-config": ("program", "pkg-config"),
               "g++": ("program", "g++")},
    "grpc": {"libgrpc++-dev": ("library", "grpc++"), "libprotobuf-dev": ("library", "protobuf"),
             "protobuf-compiler": ("program", "protoc"), "protobuf-compiler-grpc": ("program", "grpc_cpp_plugin"),
             "pkg-config": ("program", "pkg-config"), "g++": ("program", "g++")},
    "ucx": {"ucx-utils": ("program", "ucx_perftest")},
    "redis": {"redis-server": ("program", "redis-server"), "g++": ("program", "g++")},
    "memcached": {"memcached": ("program", "memcached"), "g++": ("program", "g++")},
}


def there(kind: str, name: str) -> bool:
    if kind == "program":
        return shutil.which(name) is not None
    return shutil.which("pkg-config") is not None and subprocess.run(
        ["pkg-config", "--exists", name], check=False, stdin=subprocess.DEVNULL).returncode == 0


def missing_packages(peers) -> list:
    return sorted({package for peer in peers for package, shows in NEEDS[peer].items() if not there(*shows)})


def install_command(packages) -> list:
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


def install(packages) -> None:
    # In runlevel 1 a package starts no service.
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    as_root = [] if os.geteuid() == 0 else ["sudo", "--preserve-env=DEBIAN_FRONTEND,RUNLEVEL"]
    for command in (["apt-get", "update"], install_command(packages)):
        try:
            done = subprocess.run([*as_root, *command], env=environment, check=False, stdin=subprocess.DEVNULL,
                                  stdout=2).returncode
        except OSError as error:
            raise programs.Failed(f"{command[0]}: {error.strerror}") from error
        if done != 0:
            raise programs.Failed(f"{' '.join(command)} ended with status {done}")


def prepare(peers, folder: pathlib.Path, installs: bool, seconds: float) -> None:
    """Installs, if allowed, and builds what the peers need. Raises Missing if something is not there."""
    missing = missing_packages(peers)
    if missing and installs:
        install(missing)
        missing = missing_packages(peers)
    if missing:
        raise rounds.Missing(f"missing packages: run `{' '.join(install_command(missing))}` as root, or this again "
                             "with --install, or leave these peers out")
    build(peers, folder, seconds)


# ------------------------------------------------------------------------------------ building


def flags_of(library: str) -> list:
    return subprocess.run(["pkg-config", "--cflags", "--libs", library], check=True, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL).stdout.split()


def build(peers, folder: pathlib.Path, seconds: float) -> None:
    """Compiles the programs of the peers into `folder`, unless they are newer than their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    if "zeromq" in peers:
        compile_one(folder / "zmq_peer", [HERE / "zmq_peer.cc"], flags_of("libzmq"), seconds)
    if "grpc" in peers:
        generated = [folder / "echo.pb.cc", folder / "echo.grpc.pb.cc"]
        if any(stale(path, [HERE / "echo.proto"]) for path in generated):
            run_tool(["protoc", f"--proto_path={HERE}", f"--cpp_out={folder}", f"--grpc_out={folder}",
                      f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}", "echo.proto"], seconds)
        compile_one(folder / "grpc_peer", [HERE / "grpc_peer.cc", *generated],
                    [f"-I{folder}", *flags_of("grpc++"), *flags_of("protobuf")], seconds)
    if "redis" in peers or "memcached" in peers:
        compile_one(folder / "cache_peer", [HERE / "cache_peer.cc"], [], seconds)


def stale(target: pathlib.Path, sources) -> bool:
    return not target.exists() or any(path.stat().st_mtime > target.stat().st_mtime for path in sources)


def compile_one(target: pathlib.Path, sources, flags, seconds: float) -> None:
    if not stale(target, [*sources, HERE / "load.h"]):
        return
    next_one = target.with_suffix(".next")
    run_tool(["g++", "-std=c++17", "-O2", f"-I{HERE.parents[1]}", "-o", str(next_one), *map(str, sources), *flags], seconds)
    next_one.replace(target)


def run_tool(command, seconds: float) -> None:
    with programs.Program(command) as tool:
        tool.result(seconds)


# ------------------------------------------------------------------------------------- running


class Setting(typing.NamedTuple):
    """Options that all runs share."""

    folder: pathlib.Path  # of the compiled programs
    seconds: float
    timeout: float
    slime: pathlib.Path = pathlib.Path("slime")  # the program
    venv: pathlib.Path = pathlib.Path("venv")  # the environment of other Python packages


def run_echo(setting: Setting, program: str, wire: str, size: int, inflight: int, clients: int, threads: int = 1) -> dict:
    """Runs zmq_peer or grpc_peer, over a local socket ("ipc") or loopback. Adds the calls of several
    clients, and returns the median of their medians. `threads` are of each client of zmq_peer, and
    share its `inflight`."""
    with tempfile.TemporaryDirectory() as folder:
        local = {"zmq_peer": f"ipc://{folder}/socket", "grpc_peer": f"unix:{folder}/socket"}[program]
        over_tcp = {"zmq_peer": "tcp://127.0.0.1:", "grpc_peer": "127.0.0.1:"}[program]
        address = local if wire == "ipc" else f"{over_tcp}{programs.free_port()}"
        binary = str(setting.folder / program)
        with programs.Program([binary, "server", address]) as server:
            server.wait_for(lambda: "READY" in server.output())
            command = [binary, "client", address, str(size), str(inflight), f"{setting.seconds:g}"]
            command += [str(threads)] if threads > 1 else []
            with contextlib.ExitStack() as stack:
                running = [stack.enter_context(programs.Program(command)) for _ in range(clients)]
                figures = [client.figures(setting.timeout) for client in running]
    return {"p50_us": statistics.median(item["p50_us"] for item in figures),
            "ops_per_s": sum(item["ops_per_s"] for item in figures)}


def run_cache(setting: Setting, server_name: str, operation: str, size: int) -> dict:
    """Runs Redis or memcached over a local socket."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        if server_name == "redis":
            command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir",
                       folder]
        else:
            command = ["memcached", "-s", path, "-t", "1", "-m", "512", "-I", "2m"]
            command += ["-u", "root"] if os.geteuid() == 0 else []
        with programs.Program(command) as server:
            server.wait_for(lambda: os.path.exists(path))
            with programs.Program([str(setting.folder / "cache_peer"), server_name, path, operation, str(size),
                                   f"{setting.seconds:g}"]) as client:
                return client.figures(setting.timeout)


def run_ucx(setting: Setting, wire: str, test, size: int, rate: int) -> dict:
    """Runs ucx_perftest for about the setting's seconds, at `rate` iterations per second."""
    port = str(programs.free_port())
    # Shared memory without the kernel's copies is the fastest transport of this UCX version.
    environment = dict(os.environ, UCX_TLS="tcp,self" if wire == "tcp" else "posix,self", UCX_WARN_UNUSED_ENV_VARS="n")
    count = max(100, int(rate * setting.seconds))
    command = ["ucx_perftest", "-p", port]
    with programs.Program(command, environment) as server:
        server.wait_for(lambda: programs.listening(int(port)))
        command += ["-t", *test, "-s", str(size), "-n", str(count), "-w", str(max(10, count // 20)), "-f", "-v"]
        with programs.Program([command[0], "127.0.0.1", *command[1:]], environment) as client:
            return read_ucx(client.result(setting.timeout), size)


def read_ucx(text: str, size: int) -> dict:
    """Returns the figures of the last row."""
    rows = [line.split(",") for line in text.splitlines() if line.count(",") >= 3]
    try:
        table = dict(zip(rows[0], map(float, rows[-1])))
        return {"p50_us": 2 * table["50.0_percentile_lat"], "ops_per_s": table["overall_mr"],
                "gb_per_s": table["overall_mr"] * size / 1e9}
    except (IndexError, KeyError, ValueError):
        raise programs.Failed(f"ucx_perftest printed a table that is not understood: {text.strip()[:200]!r}") from None
