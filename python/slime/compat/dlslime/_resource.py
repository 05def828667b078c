"""What an agent of DLSlime says about its machine: the "resource", JSON."""

from __future__ import annotations

import socket
from typing import Any, Dict, List

from slime._devices import devices
from slime.compat.dlslime._endpoint import NO_DEVICE


def of_this_machine(address: str, memory_keys: List[str]) -> Dict[str, Any]:
    """Returns the resource of an agent that listens at `address`."""
    nics = [
        {
            "name": each["name"],
            "health": "AVAILABLE" if any(port["state"] == "active" for port in each["ports"]) else "UNAVAILABLE",
            "ports": [{"port": port["port"], "state": port["state"].upper()} for port in each["ports"]],
        }
        for each in devices()
    ]
    return _resource(socket.gethostname(), address, nics or [_no_nic()], memory_keys)


def of_record(address: str, memory_keys: List[str]) -> Dict[str, Any]:
    """Returns what the registry tells about another machine."""
    return _resource("", address, [_no_nic()], memory_keys)


def _no_nic() -> Dict[str, Any]:
    return {"name": NO_DEVICE, "health": "AVAILABLE", "ports": [{"port": 1, "state": "ACTIVE"}]}


def _resource(hostname: str, address: str, nics: List[Dict[str, Any]], memory_keys: List[str]) -> Dict[str, Any]:
    return {
        "schema_version": 1,
        "host": {"hostname": hostname, "address": address},
        "nics": nics,
        "accelerators": [],
        "memory_keys": memory_keys,
        "topology_epoch": 0,
    }
