"""Which address others reach this machine by, and connections that are watched."""

import socket

import pytest

from unisono.comm.keepalive import DEAD_S, kept_alive
from unisono.comm.route import address_of, is_own, own_address, resolve
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
