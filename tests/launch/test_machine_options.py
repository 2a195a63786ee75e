"""Options of several machines that cannot be; which rounds an exchanger serves, and with whose gradients."""

from dataclasses import replace

import pytest

from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import COMMIT, READY, View, arrive, pack
from unisono.arena.memory.segment import Segment
from unisono.errors import UserError
from unisono.launch.exchanger_process import ExchangeRounds
from unisono.launch.machine_options import MachineOptions
from unisono.models.nets import build
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import ArenaExtent, ArenaState, plan_sections
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import STEP

TWO = MachineOptions(num_nodes=2, node_id=1, main_address="10.0.0.1")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"num_nodes": 0}, "--num-nodes is 0"),
        ({"node_id": 2}, "--node-id 2 of --num-nodes 2\nHINT: nodes are counted from 0: give 0 to 1"),
        ({"num_nodes": 1}, "--node-id 1 of --num-nodes 1\nHINT: give --num-nodes, too"),
        ({"num_nodes": 1, "node_id": 0}, "--main-address 10.0.0.1 without --num-nodes"),
        ({"main_address": ""}, "--num-nodes 2 without --main-address"),
        ({"main_port": 80}, "--main-port is 80\nHINT: give 1024 to 65535"),
        ({"ranks_per_node": -1}, "--ranks-per-node is -1"),
        ({"join_timeout": 0.0}, "--join-timeout is 0"),
        ({"join_timeout": float("inf")}, "--join-timeout is inf\nHINT: give seconds, more than 0, at most 86400"),
        ({"join_timeout": float("nan")}, "--join-timeout is nan"),
    ],
)
def test_what_cannot_be_is_refused(given, told):
    with pytest.raises(UserError) as caught:
        replace(TWO, **given)
    assert str(caught.value).startswith(told)


def arena() -> ArenaState:
    """The arena of the first of two machines, with two ranks on it."""
    model, machine_layout = build("linear", 4, 1), MachineLayout.of([0, 0, 1], 0, 8)
    sections = plan_sections(
        model, OptimizerOptions("sgd", lr=0.1), ArenaExtent(2, 8, (8,), undo=False, machine_layout=machine_layout)
    )
    segment = Segment.create(sections.nbytes)
    made = ArenaState(segment, sections, 2, (machine_layout, model.layout.length))
    segment.close()
    return made


def test_a_round_is_served_when_all_members_have_come_and_only_once():
    shared = arena()
    rounds = ExchangeRounds(shared, None, 0)
    assert rounds.makers() is None, "nobody is there yet"
    view = protocol.first_view(shared.words, range(2), 2)
    shared.mailbox.order(1, STEP, 8, due=False)
    arrive(shared.words, 0, pack(view.number, 1, READY))
    assert rounds.makers() is None
    arrive(shared.words, 1, pack(view.number, 1, READY))
    assert rounds.makers() == (0, 1)
    assert ExchangeRounds(shared, None, 1).makers() is None, "it was served before"


def test_after_a_death_the_gradients_are_those_of_whoever_made_them():
    shared = arena()
    rounds = ExchangeRounds(shared, None, 4)
    shared.mailbox.order(5, STEP, 8, due=False)
    protocol.publish(shared.words, View(7, (1,), 5, READY, (0, 1)), 2)
    assert rounds.makers() == (0, 1), "they exist, and only the update is to be done again"
    protocol.publish(shared.words, View(8, (1,), 4, COMMIT, ()), 2)
    assert rounds.makers() is None, "they are to be made again"
    arrive(shared.words, 1, pack(8, 5, READY))
    assert rounds.makers() == (1,)
