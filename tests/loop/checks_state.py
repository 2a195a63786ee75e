"""State: saving, going on, copies of the model, evaluation between steps."""

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
from loop_cases import Case, X, Y, digest, label, made, on

from unisono.errors import UserError
from unisono.world import World

CASE = Case(clip=1.0)


def epochs_of(world: World, model: torch.nn.Module, optimizer: Any, count: int) -> None:
    for batch in world.batches((X, Y), 32, epochs=count):
        for x, y in batch:
            world.backward(label(model, x, y))
        optimizer.step()


def check_going_on_from_a_saved_state() -> None:
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

    def rest(world: World) -> str:
        loaded = torch.load(io.BytesIO(saved), weights_only=True)
        model, optimizer = made(CASE)
        model.load_state_dict(loaded["model"])
        model, optimizer = world.share(model, optimizer, clip=1.0)
        optimizer.load_state_dict(loaded["optimizer"])
        epochs_of(world, model, optimizer, 2)
        return digest(model)

    assert on(2, rest) == on(1, whole) * 2


def check_evaluating_and_copying_between_steps() -> None:
    def work(looks: bool) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            model, optimizer = world.share(*made(CASE))
            average, scores = torch.optim.swa_utils.AveragedModel(model), []
            for batch in world.batches((X, Y), 32, epochs=2):
                for x, y in batch:
                    world.backward(label(model, x, y))
                optimizer.step()
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


def check_the_model_outlives_its_world() -> None:
    def work(world: World) -> list[float]:
        model, optimizer = world.share(*made(CASE))
        epochs_of(world, model, optimizer, 1)
        world.comm.barrier()
        world.close()
        return [label(model.eval(), X, Y).item()]

    first, second = on(2, work)
    assert first == second


def check_schedulers_that_look_at_the_loss() -> None:
    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(CASE))
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=3)
        rates = []
        for batch in world.batches((X, Y), 32, epochs=2):
            for x, y in batch:
                world.backward(label(model, x, y))
            optimizer.step()
            warm.step()
            plateau.step(batch.loss)
            rates.append(optimizer.param_groups[0]["lr"])
        return [rates, digest(model)]

    (one,) = on(1, work)
    assert len(set(one[0])) > 3
    assert on(3, work) == [one] * 3


def check_state_of_another_model() -> None:
    def work(world: World) -> str:
        _, optimizer = world.share(*made(CASE))
        state = optimizer.state_dict()
        state["state"] = {name: values[:-1] for name, values in state["state"].items()}
        try:
            optimizer.load_state_dict(state)
        except UserError as error:
            return str(error)
        return "nothing was refused"

    assert "load what state_dict() of a shared optimizer of the same model gave" in on(1, work)[0]


def refuse_the_state_of_torchs_optimizer(world: World) -> None:
    r"""this optimizer has gradient_sum, square_sum, of \d+ elements, in 1[\s\S]*state_dict\(\) of a shared"""
    model, optimizer = made(CASE)
    label(model, X, Y).backward()
    optimizer.step()
    saved = optimizer.state_dict()
    world.share(*made(CASE))[1].load_state_dict(saved)


def refuse_a_state_without_anything(world: World) -> None:
    """the state has nothing, in 0 groups"""
    world.share(*made(CASE))[1].load_state_dict({})
