"""Where machines meet: what the first one is called by itself and by others, and what it cannot be called."""

import socket
from typing import Any

import pytest

from unisono.errors import UserError
from unisono.launch import exchanger_process
from unisono.launch.exchanger_process import rendezvous_address
from unisono.launch.machine_options import MachineOptions

OWN = ("127.0.0.1", "127.0.1.1", "10.0.0.1", "fd00::1")


def address_of(monkeypatch: Any, node: int, main: str, means: str) -> str:
    """What a machine of two makes of --main-address, where that name means this."""
    monkeypatch.setattr(exchanger_process, "resolve", lambda host: means)
    monkeypatch.setattr(exchanger_process, "is_own", lambda address: node == 0 and address in OWN)
    monkeypatch.setattr(socket.socket, "bind", lambda *given: None)
    return rendezvous_address(MachineOptions(num_nodes=2, node_id=node, main_address=main, main_port=4711))


@pytest.mark.parametrize(
    ("node", "main", "means", "expected"),
    [
        (0, "10.0.0.1", "10.0.0.1", "10.0.0.1:4711"),
        (0, "fd00::1", "fd00::1", "[fd00::1]:4711"),
        (0, "first", "127.0.1.1", "first:4711"),  # as Debian has it: of no use to others
        (0, "localhost", "127.0.0.1", "127.0.0.1:4711"),
        (1, "first", "10.0.0.1", "10.0.0.1:4711"),
        (1, "localhost", "127.0.0.1", "127.0.0.1:4711"),
    ],
)
def test_the_address_of_the_first_machine(monkeypatch, node, main, means, expected):
    assert address_of(monkeypatch, node, main, means) == expected


@pytest.mark.parametrize(
    ("node", "main", "means", "told"),
    [
        (0, "10.0.0.2", "10.0.0.2", r"--main-address 10\.0\.0\.2 \(10\.0\.0\.2\) is not an address of .*--node-id 0"),
        (1, "first", "127.0.0.1", "--main-address first is 127.0.0.1 on .*: this machine itself"),
    ],
)
def test_an_address_that_cannot_be_its_own_is_refused(monkeypatch, node, main, means, told):
    with pytest.raises(UserError, match=told):
        address_of(monkeypatch, node, main, means)


def test_a_port_that_is_taken_is_told_before_anything_else():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--main-port {port} of {socket.gethostname()} is taken"):
            rendezvous_address(MachineOptions(num_nodes=2, node_id=0, main_address="127.0.0.1", main_port=port))
