"""Finds an RDMA device of this machine, its port and GID, and perftest's programs."""

import dataclasses
import pathlib
import shutil

import rounds
from rounds import Missing

DEVICES = pathlib.Path("/sys/class/infiniband")


@dataclasses.dataclass(frozen=True)
class Place:
    """The RDMA device that both sides use."""

    device: str
    port: int
    gid_index: int  # -1: none, because InfiniBand needs no index


def read_line(path: pathlib.Path) -> str:
    """Returns the file's text; "" if the file is missing or unreadable, as of an unused GID."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def find_place(device: str, port: int, gid_index: int) -> Place:
    """Returns the device's port and GID; for an empty argument, the first that works."""
    devices = sorted(path.name for path in DEVICES.iterdir()) if DEVICES.is_dir() else []
    if not devices:
        raise Missing("this machine has no RDMA device; tests/rxe/run runs a command where there is one")
    if device and device not in devices:
        raise Missing(f"no device {device}: there is {', '.join(devices)}")
    found = []
    for name in [device] if device else devices:
        for path in sorted((DEVICES / name / "ports").iterdir(), key=lambda path: int(path.name)):
            if port in (0, int(path.name)):
                state = read_line(path / "state")
                found.append(f"{name} port {path.name}: {state}")
                if state.endswith(": ACTIVE"):
                    return Place(name, int(path.name), find_gid(path, gid_index))
    if not found:
        raise Missing(f"{device or 'no device'} has no port {port}")
    raise Missing(f"no port is active: {', '.join(found)}")


def find_gid(port: pathlib.Path, wanted: int) -> int:
    """Returns the given index, or the index of the RoCEv2 GID for IPv4, chosen like in
    `tests/rxe/common.sh`."""
    used = [int(path.name) for path in (port / "gids").iterdir() if read_line(path).strip(":0")]
    if wanted >= 0 and wanted not in used:
        raise Missing(f"{port.parent.parent.name} port {port.name} has no GID {wanted}: there is "
                      + (", ".join(map(str, sorted(used))) or "none"))
    if wanted >= 0 or read_line(port / "link_layer") == "InfiniBand":
        return wanted
    for index in sorted(used):
        if ":ffff:" in read_line(port / "gids" / str(index)) and "v2" in read_line(port / f"gid_attrs/types/{index}"):
            return index
    return 0


def find_programs(slime: pathlib.Path, tools) -> None:
    rounds.need_slime(slime)
    missing = sorted(tool for tool in tools if not shutil.which(tool))
    if missing:
        raise Missing(f"missing {', '.join(missing)}: install perftest (scripts/install_deps.sh --rxe)")
