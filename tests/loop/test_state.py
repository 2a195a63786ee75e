"""State: saving, going on, copies of the model, evaluation between steps."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from support.loop.loop_cases import CLASSES, FEATURES, Case, X, Y, digest, label, made, on, plain, train_batch
from support.loop.refusals import check_refused
from unisono.world import World

pytestmark = pytest.mark.forked

CASE = Case(clip=1.0)


def epochs_of(world: World, model: torch.nn.Module, optimizer: Any, count: int) -> None:
    for batch in world.batches((X, Y), 32, epochs=count):
        train_batch(world, model, optimizer, batch)


def test_going_on_from_a_saved_state() -> None:
    """Two epochs and then two of another run, on other ranks, are four: Adam's step count and the shuffle go on too."""

    def whole(world: World) -> str:
        model, optimizer = world.share(*made(CASE), clip=1.0)
        epochs_of(world, model, optimizer, 4)
        return digest(model)

    def half(world: World) -> list[int]:
        model, optimizer = world.share(*made(CASE), clip=1.0)
        epochs_of(world, model, optimizer, 2)
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        return list(file.getvalue())

    saved = bytes(on(3, half)[0])

    def rest(before: bool) -> Callable[[World], str]:
        def train(world: World) -> str:
            loaded = torch.load(io.BytesIO(saved), weights_only=True)
            model, optimizer = made(CASE)
            model.load_state_dict(loaded["model"])
            if before:
                optimizer.load_state_dict(loaded["optimizer"])
            model, optimizer = world.share(model, optimizer, clip=1.0)
            if not before:
                optimizer.load_state_dict(loaded["optimizer"])
            epochs_of(world, model, optimizer, 2)
            return digest(model)

        return train

    for before in (False, True):
        assert on(2, rest(before)) == on(1, whole) * 2, before


def test_evaluating_and_copying_between_steps() -> None:
    def work(looks: bool) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            model, optimizer = world.share(*made(CASE))
            average, scores = torch.optim.swa_utils.AveragedModel(model), []
            for batch in world.batches((X, Y), 32, epochs=2):
                train_batch(world, model, optimizer, batch)
                if looks:
                    model.eval()
                    with torch.no_grad():
                        scores.append(label(model, X, Y).item())
                    model.train()
                    average.update_parameters(model)
                    copy.deepcopy(model)(X)
            return [digest(model), scores, digest(average.module)]

        return train

    (quiet,) = on(1, work(looks=False))
    (one,) = on(1, work(looks=True))
    assert one[0] == quiet[0]
    assert one[2] not in (quiet[2], one[0])
    assert on(3, work(looks=True)) == [one] * 3


def test_the_model_outlives_its_world() -> None:
    def work(world: World) -> list[float]:
        model, optimizer = world.share(*made(CASE))
        epochs_of(world, model, optimizer, 1)
        world.comm.barrier()
        world.close()
        return [label(model.eval(), X, Y).item()]

    first, second = on(2, work)
    assert first == second


def test_schedulers_that_look_at_the_loss() -> None:
    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(CASE))
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=3)
        rates = []
        for batch in world.batches((X, Y), 32, epochs=2):
            train_batch(world, model, optimizer, batch)
            warm.step()
            plateau.step(batch.loss)
            rates.append(optimizer.param_groups[0]["lr"])
        return [rates, digest(model)]

    (one,) = on(1, work)
    assert len(set(one[0])) > 3
    assert on(3, work) == [one] * 3


def saved_by_torch(net: Callable[[], nn.Module] = CASE.net, kind: Any = CASE.optimizer) -> dict[str, Any]:
    """After one step of its own."""
    torch.manual_seed(4)
    model = net()
    optimizer = kind(model.parameters())
    label(model, X, Y).backward()
    optimizer.step()
    return optimizer.state_dict()


def test_a_state_of_torchs_is_the_same_before_and_after_share() -> None:
    def work(before: bool) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            model, optimizer = made(CASE)
            if before:
                optimizer.load_state_dict(saved_by_torch())
            model, optimizer = world.share(model, optimizer)
            if not before:
                optimizer.load_state_dict(saved_by_torch())
            epochs_of(world, model, optimizer, 1)
            return [digest(model), optimizer.state_dict()["state"]["unisono"]["steps"]]

        return train

    assert on(2, work(before=True)) == on(1, work(before=False)) * 2
    assert on(1, work(before=True))[0][1] == 1 + 4


def test_torch_goes_on_from_a_shared_state() -> None:
    """A checkpoint is torch's: what is loaded into an optimizer that is never shared is not lost in silence."""

    def work(world: World) -> list[float]:
        model, optimizer = world.share(*made(Case(plain)))
        epochs_of(world, model, optimizer, 2)
        alone, own = made(Case(plain))
        alone.load_state_dict(model.state_dict())
        own.load_state_dict(optimizer.state_dict())
        for batch in world.batches((X, Y), len(X)):
            own.zero_grad()
            label(alone, X, Y).backward()
            own.step()
            train_batch(world, model, optimizer, batch)
        pairs = zip(model.parameters(), alone.parameters(), strict=True)
        return [float((mine - other).detach().abs().max()) for mine, other in pairs]

    assert max(on(1, work)[0]) < 1e-5  # a first step of Adam would be 0.01


def of_another_model() -> dict[str, Any]:
    layers = nn.Linear(FEATURES, 3), nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, CLASSES)
    return saved_by_torch(lambda: nn.Sequential(*layers))


def vectors_alone() -> dict[str, Any]:
    vectors = {"gradient_sum": torch.zeros(7), "square_sum": torch.zeros(7)}
    return {"state": vectors, "param_groups": [{"lr": 0.1}], "steps": 3}


STATES: dict[str, Callable[[], dict[str, Any]]] = {
    r"the optimizer's state of '0\.weight' is of shape \[\(3, 12\)\][\s\S]*for the same model": of_another_model,
    "the optimizer's state has momentum; this optimizer keeps gradient_sum, square_sum": lambda: saved_by_torch(
        kind=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    ),
    r"the state has groups of \[\] parameters, this optimizer of \[8\]": dict,
    r"the state has groups of \[0\] parameters, this optimizer of \[8\]": vectors_alone,
}


@pytest.mark.parametrize("message", STATES)
def test_states_that_do_not_fit(message):
    check_refused(message, lambda world: world.share(*made(CASE))[1].load_state_dict(STATES[message]()))
