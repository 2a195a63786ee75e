"""What a rank says that waits for other machines in vain."""

import pytest

from support.strategies.arena_cases import arena_state
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member
from unisono.arena.round import Round
from unisono.comm.collective_check import RankErrors
from unisono.errors import CommTimeout
from unisono.strategies.arena.state import ArenaExtent
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import RemoteView


def test_a_wait_that_is_too_long_is_an_error_that_names_who_exchanges():
    machine_layout = MachineLayout.of([0, 1, 1], 1, 8)
    shared = arena_state(ArenaExtent(2, 8, (8,), undo=False, machine_layout=machine_layout))
    protocol.first_view(shared.words, range(2), 2)
    member = Member(shared.words, 1, 2, crowded=False, timeout_s=0.01)
    remote = RemoteView(machine_layout)
    with pytest.raises(CommTimeout) as caught:
        remote.fetch(Round(member, RankErrors(1, remote.rank_of)), shared.mailbox, 1)
    assert str(caught.value).startswith(
        "rank 2: waited 0.01 s in an exchange with other machines; rank 1 did not arrive\nHINT: see what that rank"
    )
    assert caught.value.missing == (1,)
