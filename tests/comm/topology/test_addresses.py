"""Which address others reach this machine by, and connections that are watched."""

import socket
from types import SimpleNamespace

import psutil
import pytest

from unisono.comm.gloo.kernel_settings import DEAD_S, kept_alive
from unisono.comm.topology.addresses import (
    address_of,
    connect_error,
    is_own,
    own_address,
    own_addresses,
    resolve,
    route_to,
)
from unisono.errors import UserError


def test_the_way_to_this_machine_itself_is_its_loopback():
    assert own_address("127.0.0.1") == own_address("localhost") == "127.0.0.1"
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1"), "an address that is nobody's (RFC 5737)"


def test_names_that_mean_nothing_are_refused():
    with pytest.raises(UserError, match=r"'no\.such\.host\.invalid' does not resolve(.|\n)*HINT: give an IP address"):
        resolve("no.such.host.invalid")


def test_interfaces_by_name():
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(UserError, match="--interface eth99: there is none of that name"):
        address_of("eth99")


def test_connections_opened_inside_are_watched_and_no_others():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as before:
        with kept_alive():
            inside = socket.create_connection(server.getsockname())
        with inside:
            option = socket.SOL_SOCKET, socket.SO_KEEPALIVE
            assert (before.getsockopt(*option), inside.getsockopt(*option)) == (0, 1)
            assert inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * DEAD_S


def test_a_machine_tells_addresses_that_others_may_reach(monkeypatch):
    entries = {
        "lo": [address("127.0.0.1"), address("::1")],
        "eth0": [address("fd00::7"), address("fe80::1%eth0"), address("10.0.0.7")],
        "eth1": [address("10.9.9.7")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: entries)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {n: SimpleNamespace(isup=n != "eth1") for n in entries})
    assert own_addresses() == ["10.0.0.7", "fd00::7"]


def address(text: str) -> SimpleNamespace:
    return SimpleNamespace(family=socket.AF_INET6 if ":" in text else socket.AF_INET, address=text)


def test_the_way_to_another_machine_is_the_first_address_that_answers_and_is_not_this_ones(monkeypatch):
    monkeypatch.setattr("unisono.comm.topology.addresses.is_own", lambda address: address == "127.0.0.3")
    with socket.create_server(("127.0.0.2", 0)) as there:
        port = there.getsockname()[1]
        with socket.create_server(("127.0.0.3", port)):
            assert route_to(["127.0.0.3", "127.0.0.4", "127.0.0.2"], port) == "127.0.0.2"
            assert route_to(["127.0.0.3", "127.0.0.4"], port) == ""


def test_whoever_does_not_answer_in_time_is_told_with_the_reason(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        assert connect_error("127.0.0.1", port, 5.0) == ""
    assert connect_error("127.0.0.1", port, 0.2) == "Connection refused"

    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "not known" in connect_error("no.such.host.invalid", port, 0.2)


@pytest.mark.parametrize("name", ["a..b", f"{'a' * 64}.example"])
def test_what_cannot_be_a_name_is_told_at_once(name):
    assert connect_error(name, 29500, 60.0) == "it is no host name"
    with pytest.raises(UserError, match=r"does not resolve on .*: it is no host name"):
        resolve(name)


def test_whoever_answers_late_is_heard(monkeypatch):
    """The name, the machine or the program may come up a moment later."""
    answers = [ConnectionRefusedError(111, "Connection refused"), SimpleNamespace(close=lambda: None)]

    def connect(*_: object) -> object:
        found = answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(socket, "create_connection", connect)
    assert connect_error("10.0.0.1", 29500, 60.0) == ""
    assert answers == []
