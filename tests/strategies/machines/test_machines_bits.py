"""Several machines end with the bits of one, and of the plain reference. Machines are pretended: an arena each."""

from contextlib import closing
from functools import partial

import numpy as np
import pytest

import unisono
from support.strategies.arena_cases import CASES, SAMPLES, TARGETS, X, Y, model_of, reference, train
from unisono.data.loader import Loader
from unisono.data.shards import ShardPlan
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator
from unisono.strategies.arena.arena_join import ArenaStart
from unisono.strategies.arena.spec import make_sync_arena
from unisono.strategies.arena.state import ArenaExtent
from unisono.strategies.base import Batch
from unisono.strategies.machines.machine_exchange import Exchanger, PackedArrays

LAYOUTS = {
    "2,2": (0, 0, 1, 1),
    "3,1": (0, 0, 0, 1),
    "1,1,1,1": (0, 1, 2, 3),
    "1,2,3": (0, 1, 1, 2, 2, 2),
    "in turn": (0, 1, 0, 1),
    "1,1": (0, 1),
}
PLAN = ShardPlan(SAMPLES, 48, 8, seed=3)
"""203 = 4 x 48 + 11: in the last batch only the first node has shards that are not empty."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ["bn-mlp lars", "mlp momentum"])
def test_any_layout_ends_with_the_bits_of_the_reference(case, layout):
    colours = LAYOUTS[layout]
    found = unisono.run(lambda world: train(world, case, PLAN, ArenaStart(colours=colours)), len(colours))
    assert set(found) == {reference(case, PLAN)}


@pytest.mark.parametrize("case", CASES)
def test_any_network_and_optimizer_on_two_nodes(case):
    found = unisono.run(lambda world: train(world, case, PLAN, ArenaStart(colours=(0, 0, 0, 1))), 4)
    assert set(found) == {reference(case, PLAN)}


@pytest.mark.parametrize(("batch", "shards"), [(16, 16), (203, 4), (7, 5), (10, 8)])
def test_other_batches_and_shards(batch, shards):
    plan = ShardPlan(SAMPLES, batch, shards, seed=1)
    found = unisono.run(lambda world: train(world, "mlp momentum", plan, ArenaStart(colours=(0, 1, 1, 2))), 4)
    assert set(found) == {reference("mlp momentum", plan)}


def test_sums_rounded_on_their_way_are_the_same_on_all_nodes_and_not_those_of_one():
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    start = ArenaStart(colours=(0, 0, 1), wire=bfloat16)
    found = unisono.run(lambda world: train(world, "mlp momentum", PLAN, start), 3)
    assert len(set(found)) == 1
    assert found[0] != reference("mlp momentum", PLAN)


def evaluate(world: unisono.World) -> tuple:
    """One step with contributions, then a survey, on pretended machines: what each rank hears of all."""
    model, told = model_of("mlp adam clip"), []
    extent = ArenaExtent(world.size, 8, (8,), steps=1, blocks=5)
    start = ArenaStart(colours=(0, 1, 1, 0))
    with closing(
        make_sync_arena(world.comm, model, OptimizerOptions("sgd", lr=0.1), extent, generator(0, "init"), start)
    ) as strategy:
        loader = Loader(PLAN, X, Y)
        strategy.step(Batch(1, 1, 0, 8, 48, 0.1, 1, partial(loader.groups, PLAN.order(0), 0), None, True))
        strategy.note_memory(10 ** (1 + strategy.rank))
        table = strategy.evaluate(2, 5, lambda number: (float(number), world.rank), told.append)
        samples = [row["samples"] for row in strategy.times(1)]
        shares = strategy.contributions()
        sent = strategy.epoch_extras(1).metrics["sent_bytes_per_step"]
        world.comm.barrier()
        return table.tolist(), samples, shares.shape, shares[:, :, 0].sum(axis=0).tolist(), (
            strategy.memory_bytes(), len(told), sent, model.layout.length, strategy.rank, strategy.size,
        )  # fmt: skip


def test_what_ranks_count_and_measure_is_known_on_all_machines():
    found = unisono.run(evaluate, 4)
    # Seats are 0, 3 on the first machine and 1, 2 on the other: blocks 0 and 1 are rank 0's, 2 is rank 3's ...
    assert found[0][0] == [[0.0, 0.0], [1.0, 0.0], [2.0, 3.0], [3.0, 1.0], [4.0, 2.0]]
    assert all(one[:2] == found[0][:2] for one in found)
    assert found[0][1] == [12.0] * 4
    for _, _, shape, contributed, (memory, _, sent, length, rank, size) in found:
        assert shape[0] == 4
        assert contributed == pytest.approx([1.0] * shape[1])
        assert (memory, size) == (11110, 4)
        assert 4 * length <= sent <= 1.05 * 4 * length, "one sum of the vector, to one other machine"
        assert rank in range(4)
    assert [one[4][1] for one in found] == [1, 1, 0, 0], "the first rank of each machine tells"


@pytest.mark.parametrize("late", [False, True], ids=["before the exchange", "after it"])
def test_a_request_to_halt_on_one_machine_halts_all(late, monkeypatch):
    """Also one that comes when the round's exchange is over: that machine must not halt a round before the others."""
    gather = Exchanger._gather

    def asked_late(exchanger: Exchanger, packed: PackedArrays) -> object:
        found = gather(exchanger, packed)
        if late and exchanger._machine_layout.node == 1 and exchanger._mailbox.ordered_at == 1:
            exchanger._shared.requests.ask_to_halt()
        return found

    monkeypatch.setattr(Exchanger, "_gather", asked_late)

    def work(world: unisono.World) -> list[bool]:
        model = model_of("linear sgd")
        extent = ArenaExtent(world.size, 8, (8,), steps=9)
        start = ArenaStart(colours=(0, 1, 1))
        with closing(
            make_sync_arena(world.comm, model, OptimizerOptions("sgd", lr=0.1), extent, generator(0, "init"), start)
        ) as strategy:
            loader, halts = Loader(PLAN, X, TARGETS), []
            for position in range(1, 4):
                if not late and (world.rank, position) == (2, 2):
                    strategy.ask_to_halt()
                world.comm.barrier()
                load = partial(loader.groups, PLAN.order(0), 0)
                strategy.step(Batch(position, 1, position - 1, 8, 48, 0.1, position, load))
                halts.append(strategy.halts_after(position))
            world.comm.barrier()
            return halts

    assert unisono.run(work, 3) == [[False, True, False]] * 3


def test_machines_whose_parameters_differ_say_so_on_every_rank(monkeypatch):
    """Not that one of them was lost: that would be saved, and gone on from."""
    found = survey_of(monkeypatch)
    assert {kind for kind, _ in found} == {"Diverged"}
    assert "have different parameters; nothing was saved" in found[0][1]
    assert all("different parameters" in told for _, told in found)


def survey_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What each rank raises when the last machine's parameters are others."""
    exchange = Exchanger._evaluate

    def on_other_parameters(exchanger: Exchanger, count: int) -> None:
        if exchanger._machine_layout.node == 1:
            exchanger._shared.params[0] += 1.0
        exchange(exchanger, count)

    monkeypatch.setattr(Exchanger, "_evaluate", on_other_parameters)

    def work(world: unisono.World) -> tuple[str, str]:
        try:
            evaluate(world)
        except unisono.errors.UnisonoError as error:
            return type(error).__name__, str(error)
        finally:
            world.comm.barrier()
        return "", ""

    return unisono.run(work, 4)
