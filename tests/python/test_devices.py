"""slime.devices(), and PeerAgent(verbs=...): an agent's own settings of RDMA."""

import json
import subprocess

import pytest

import slime
from conftest import program


def test_devices_lists_the_adapters_that_doctor_lists():
    found = slime.devices()
    doctor = subprocess.run([program("slime", "cli"), "doctor", "--json"], stdout=subprocess.PIPE, check=False)
    names = [finding["name"] for finding in json.loads(doctor.stdout)["findings"]]
    names = [name for name in names if name.startswith("rdma device ") and not name.endswith(" limits")]
    assert [f"rdma device {device['name']}" for device in found] == names
    for device in found:
        assert device["error"] is None or (device["ports"] == [] and device["error"]["text"])
        for port in device["ports"]:
            assert port["port"] >= 1 and port["state"] and port["link_layer"] in ("Ethernet", "InfiniBand")
            assert all(gid["gid"] and gid["index"] >= 0 for gid in port["gids"])


@pytest.mark.parametrize("provider", ["auto", "verbs"])
def test_an_agent_does_not_start_without_the_adapter_that_it_names(provider):
    with pytest.raises(slime.Error, match="provider verbs"):
        slime.PeerAgent(provider=provider, verbs={"device": "nosuch0"})


def test_an_agent_without_verbs_ignores_the_adapter(make_agent):
    make_agent(provider="tcp", verbs={"device": "nosuch0", "port": 1, "relaxed_ordering": False, "mtu": "1024"})


@pytest.mark.parametrize(
    "verbs, text",
    [
        ({"gid": 3}, "'gid' is no setting of verbs; there are device, port, gid_index,"),
        ({"port": 0}, "port is '0', must be 1 to 255, or -1: Slime chooses"),
        ({"port": 1.5}, "port is 1.5, must be an int, a bool or a str"),
        ({"port": None}, "port is None, must be an int, a bool or a str"),
        ({"flush_read": "yes"}, "flush_read is 'yes', must be 0 or 1"),
        ({"device": "../mlx5_0"}, "must be the name of a device"),
    ],
)
def test_wrong_settings_are_refused_with_their_names_and_bounds(verbs, text):
    with pytest.raises(slime.InvalidArgument) as caught:
        slime.PeerAgent(provider="tcp", verbs=verbs)
    assert text in str(caught.value)


def test_settings_are_a_dict():
    with pytest.raises(TypeError):
        slime.PeerAgent(provider="tcp", verbs="device=mlx5_0")
