"""What a rank says that waits for other machines in vain."""

import pytest

from unisono.arena import protocol
from unisono.arena.member import Member
from unisono.arena.round import Round
from unisono.arena.segment import Segment
from unisono.comm.arrival import RankErrors
from unisono.errors import CommTimeout
from unisono.models.nets import build
from unisono.optim.options import OptimizerOptions
from unisono.strategies.nodes.away import Away
from unisono.strategies.nodes.seating import Seating
from unisono.strategies.shared import Extent, Shared, plan_sections


def test_a_wait_that_is_too_long_is_an_error_that_names_who_exchanges():
    model, seating = build("linear", 4, 1), Seating.of([0, 1, 1], 1, 8)
    sections = plan_sections(model, OptimizerOptions("sgd", lr=0.1), Extent(2, 8, (8,), undo=False, seating=seating))
    segment = Segment.create(sections.nbytes)
    shared = Shared(segment, sections, 2, (seating, model.layout.length))
    segment.close()
    protocol.first_view(shared.words, range(2), 2)
    member = Member(shared.words, 1, 2, crowded=False, timeout_s=0.01)
    away = Away(seating)
    with pytest.raises(CommTimeout) as caught:
        away.fetch(Round(member, RankErrors(1, away.rank_of)), shared.desk, 1)
    assert str(caught.value).startswith(
        "rank 2: waited 0.01 s in an exchange with other machines; rank 1 did not arrive\nHINT: see what that rank"
    )
    assert caught.value.missing == (1,)
