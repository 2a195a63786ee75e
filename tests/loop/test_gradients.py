"""Who asks for gradients, computes them alone or steps alone is refused: a message with a hint on every rank."""

from collections.abc import Callable

import pytest
import torch

from support.loop.loop_cases import Case, X, Y, go, label, made, on, plain, train_batch
from support.loop.refusals import refused
from unisono.world import World

pytestmark = pytest.mark.forked

CASE = Case()


def test_gradients_of_a_shard_can_be_looked_at() -> None:
    """As the hint says; the training is that of somebody who does not look."""

    def work(look: bool) -> Callable[[World], list[float]]:
        def train(world: World) -> list[float]:
            found = 0.0
            for model, optimizer, batch in go(world, batch_size=102):
                for x, y in batch:
                    loss = label(model, x, y)
                    if look:
                        found += torch.autograd.grad(loss, model[0].weight, retain_graph=True)[0].norm().item()
                    world.backward(loss)
                optimizer.step()
            return [found, model[0].bias.sum().item()]

        return train

    (seen, weights), (blind, same) = on(2, work(True))[0], on(2, work(False))[0]
    assert seen > 0 == blind
    assert weights == same


def test_gradients_of_an_earlier_life_are_forgotten() -> None:
    def work(world: World) -> None:
        model, optimizer = made(CASE)
        label(model, X, Y).backward()
        model, optimizer = world.share(model, optimizer)
        for batch in world.batches((X, Y), 32):
            train_batch(world, model, optimizer, batch)

    on(2, work)


@refused(r"parameter '0\.weight' has a hook of register_post_accumulate_grad_hook")
def test_refuses_hooks_that_wait_for_gradients(world: World) -> None:
    model, optimizer = made(CASE)
    model[0].weight.register_post_accumulate_grad_hook(print)
    world.share(model, optimizer)


def test_hooks_of_tensors_are_called() -> None:
    def work(world: World) -> int:
        model, optimizer = made(CASE)
        calls: list[int] = []
        model[0].weight.register_hook(lambda gradient: calls.append(1))
        model, optimizer = world.share(model, optimizer)
        for batch in world.batches((X, Y), 102):
            train_batch(world, model, optimizer, batch)
        return len(calls)

    assert sum(on(2, work)) == 8


def test_a_graph_from_before_a_step_is_refused_by_torch() -> None:
    """The parameters in it have changed since: its gradients would be those of neither."""

    def work(world: World) -> str:
        model, optimizer = world.share(*made(Case(plain)))
        old = label(model, X, Y)
        for batch in world.batches((X, Y), 32):
            for x, y in batch:
                try:
                    world.backward(label(model, x, y) + (old if batch.step else 0.0))
                except RuntimeError as error:
                    return str(error)
            optimizer.step()
        return "nothing was refused"

    assert all("modified by an inplace operation" in found for found in on(1, work))


def test_a_shard_of_no_weight() -> None:
    """A shard without a single token that counts, say: the mean is over the others."""

    def work(weight: float) -> Callable[[World], list[float]]:
        def train(world: World) -> list[float]:
            found = []
            for model, optimizer, batch in go(world, Case(plain), share={"shards": 2}, batch_size=102, shuffle=False):
                for x, y in batch:
                    half = 0 if torch.equal(x[0], X[0]) else 1
                    world.backward(label(model, x, y), weight=weight if half else 51)
                optimizer.step()
                found = [batch.loss, model[0].bias[0].item()]
            return found

        return train

    without, with_ = on(2, work(0))[0], on(2, work(51))[0]
    model, optimizer = made(Case(plain))
    loss = label(model, X[:51], Y[:51])
    loss.backward()
    optimizer.step()
    assert abs(without[0] - loss.item()) < 1e-6
    assert abs(without[1] - model[0].bias[0].item()) < 1e-6
    assert without != with_
