"""Asynchronous training in the arena: divergence, and ranks that join; the rest is in `../test_training.py`."""

from contextlib import closing

import pytest

from support.strategies.async_reference import PUSHES, SMALL
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member
from unisono.arena.memory.segment import Segment
from unisono.errors import RankFailed
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.arena.state import ArenaState, plan_sections
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.asynchronous.arena.buffers import DONE, HALTED, ORDERED, WHOLE, token
from unisono.strategies.asynchronous.arena.hooks import set_up
from unisono.strategies.asynchronous.arena.strategy import AsyncArena
from unisono.strategies.asynchronous.sequencer import PUSH, Entry
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.training.job import prepare

pytestmark = pytest.mark.usefixtures("no_price")


def test_divergence_names_staleness_and_the_rule():
    data = "synthetic:regression,rows=90,features=3"
    recipe = SMALL.with_options(staleness_rule="plain", model="linear", data=data, lr=1e30)
    with pytest.raises(RankFailed, match=r"loss became (.|\n)*staleness(.|\n)*--staleness-rule safe"):
        SupervisedRun(prepare(recipe), RunPlaces()).train(lambda rank, value: None)


def replacement(position: int) -> AsyncArena:
    """A rank that joins when that round is done; in its epoch rank 3 has pushed once."""
    job = prepare(SMALL)
    model = job.model()
    sections = plan_sections(model, job.shared_optimizer, job.extent())
    with closing(Segment.create(sections.nbytes)) as segment:
        shared = ArenaState(segment, sections, SMALL.ranks.count)
    protocol.first_view(shared.words, range(SMALL.ranks.count), SMALL.ranks.count, position)
    setup = set_up(model, async_options_of(job, model), job.optimizer, PUSHES, SMALL.ranks.count)
    epoch = -(-position // 2)
    setup.async_buffers.log[0] = Entry(PUSH, 3, 0, 0, 2, 0, 1, 8)
    setup.async_buffers.words[ORDERED] = token(epoch, 1)
    setup.async_buffers.gradients[3] = 1.0
    setup.async_buffers.words[DONE] = token(epoch, WHOLE)
    member = Member(shared.words, 2, SMALL.ranks.count, crowded=True)
    return AsyncArena(SyncArena(shared, member, model, job.optimizer), shared, member, model, setup)


@pytest.mark.parametrize("position", [1, 2, 3, 4])
def test_who_joins_when_an_epoch_is_done_knows_which(position):
    """It may be the one that tells what was contributed; and it must leave with the others, if they were asked to."""
    strategy = replacement(position)
    assert strategy.contributions()[3, :, 0] == pytest.approx([1.0] * 4)
    assert not strategy.halts_after(position)
    strategy._async_buffers.words[DONE] = token(-(-position // 2), HALTED)
    assert strategy.halts_after(position)
    assert not strategy.halts_after(position + 2), "an end of another epoch"
