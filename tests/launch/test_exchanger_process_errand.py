"""What a supervisor and its exchanger say to each other fits the line between them."""

import socket

from unisono.launch.exchanger_process import MESSAGE_BYTES, packed, unpacked
from unisono.messages.exchange import Joined
from unisono.recipe import Recipe
from unisono.training.consistency import facts_of


def test_the_facts_of_a_thousand_machines_are_one_message():
    facts = [
        facts_of(Recipe()) | {"host": f"n{node}", "address": f"10.0.{node // 256}.{node % 256}"} for node in range(1000)
    ]
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        left.settimeout(10)
        left.send(packed(Joined(facts)))
        assert unpacked(right.recv(MESSAGE_BYTES)) == Joined(facts)
