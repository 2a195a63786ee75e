"""Messages travel under their own types, and nothing else can be taken for one."""

import numpy as np
import pytest

import unisono
from unisono.errors import UserError
from unisono.messages.exchanger_orders import Failed, NodesLost, Share, Shared, Succeeded
from unisono.messages.packing import MESSAGES, pack, unpack
from unisono.messages.rank_reports import EpochRecord, Failure, LeftOnRequest, Progress, Result, StoppedAt, UserReport


@pytest.mark.parametrize(
    "message",
    [
        Progress(1, 2, 3, 4.5), EpochRecord({"epoch": 1}, 4, [{"host": "a"}], [[[0.5, 1.0, 2.0]]], 4), StoppedAt(),
        StoppedAt(7), LeftOnRequest("snapshots/1"), Failure("ValueError", "no", traceback=True, rank=3),
        Shared([Succeeded(1), Failed(2, "no label", "give one")]), Share(Succeeded({"a": [1, None]})),
        NodesLost("node 1 was lost", (1, 2), certain=False, crashes=3), Result(UserReport({"own": 1})),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_a_message_arrives_as_what_it_was(message):
    found = unpack(pack(message))
    assert (type(found), found) == (type(message), message)


def test_arrays_inside_messages_arrive():
    found = unpack(pack(UserReport({"w": np.float32([[1, 2]])})))
    assert found.value["w"].dtype == np.float32


@pytest.mark.parametrize("value", [{"__message__": ["Note", "x"]}, {"a": {"__message__": 1}}, type("Note", (), {})()])
def test_nothing_of_the_users_can_be_taken_for_a_message(value):
    with pytest.raises(UserError, match="cannot be handed back"):
        pack(UserReport(value))


def test_what_may_travel_is_frozen_and_has_a_name_of_its_own():
    for name, kind in MESSAGES.items():
        assert kind.__name__ == name
        assert kind.__dataclass_params__.frozen


def test_a_users_report_is_never_read_as_one_of_ours():
    """Values that look like what ranks once told each other reach the user as they are."""
    values = ["ready to join", {"unisono: shared": {"halts": True}}, {"spare": 1}, None]
    told = []

    def work(world: unisono.World) -> None:
        for value in values:
            world.report(value)

    unisono.run(work, 1, on_report=lambda rank, value: told.append(value), timeout_s=30.0)
    assert told == values
