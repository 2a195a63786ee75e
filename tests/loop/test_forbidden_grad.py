"""What is refused in the loop itself: each a message with a hint on every rank, and no hang."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from support.loop.loop_cases import CLASSES, FEATURES, Case, X, Y, all_of, go, label, made, plain, train_batch
from support.loop.refusals import check_refused, refused
from unisono.world import World

pytestmark = pytest.mark.forked

CASE = Case()
Mistake = Callable[..., object]


def reentrant(model, x, y, at: slice):
    """The loss, with the layers `at` in a re-entrant checkpoint."""
    before = model[: at.start](x.requires_grad_()) if at.start else x.requires_grad_()
    inner = checkpoint(model[at], before, use_reentrant=True)
    return label(model[at.stop :] if at.stop else nn.Identity(), inner, y)


SHARD = {
    "no backward": ("world.backward was not called for a shard", lambda world, model, x, y: label(model, x, y)),
    "backward twice": (
        "outside a batch, or twice for a shard",
        lambda world, model, x, y: [world.backward(label(model, x, y)) for _ in range(2)],
    ),
    "a loss that is not a scalar": (
        r"world\.backward was given a tensor of shape \(\d+, 4\)[\s\S]*mean loss",
        lambda world, model, x, y: world.backward(model(x)),
    ),
    "a loss that is a number": (
        r"world\.backward was given a float",
        lambda world, model, x, y: world.backward(label(model, x, y).item()),
    ),
    "a loss without grad": (
        "depends on no parameter that is trained",
        lambda world, model, x, y: world.backward(label(model, x, y).detach()),
    ),
    "a loss of another model": (
        "the loss of a shard depends on no parameter that is trained",
        lambda world, model, x, y: world.backward(label(plain(), x, y)),
    ),
    "a batch without weight": (
        "all shards of a batch weigh 0",
        lambda world, model, x, y: world.backward(label(model, x, y), weight=0),
    ),
    "a negative weight": ("weight is -1", lambda world, model, x, y: world.backward(label(model, x, y), weight=-1)),
    "no weight with a loss that is not finite": (
        "a shard of weight 0 has the loss nan",
        lambda world, model, x, y: world.backward(label(model, x, y) * float("nan"), weight=0),
    ),
    "clip_grad_norm_": (
        r"clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0",
        lambda world, model, x, y: (
            model.zero_grad(),
            world.backward(label(model, x, y)),
            nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        ),
    ),
    "a scaled loss": (
        r"loss\.backward\(\) was called",
        lambda world, model, x, y: torch.amp.GradScaler("cpu").scale(label(model, x, y)).backward(),
    ),
    "loss.backward": (
        r"loss\.backward\(\) was called[\s\S]*world\.backward\(loss\)",
        lambda world, model, x, y: label(model, x, y).backward(),
    ),
    "another loss before": (
        r"parameter '0\.weight' was given a gradient outside world\.backward[\s\S]*add losses up",
        lambda world, model, x, y: (
            model.zero_grad(),
            model(x).square().mean().backward(),
            world.backward(label(model, x, y)),
        ),
    ),
    **{
        f"a re-entrant checkpoint {where}": (
            r"a re-entrant checkpoint[\s\S]*use_reentrant=False",
            lambda world, model, x, y, at=at: world.backward(reentrant(model, x, y, at)),
        )
        for where, at in (("first", slice(0, 4)), ("last", slice(4, None)), ("of everything", slice(0, None)))
    },
}


@pytest.mark.parametrize("name", SHARD)
def test_with_a_shard(name):
    message, mistake = SHARD[name]

    def work(world: World) -> None:
        for model, _, batch in go(world):
            for x, y in batch:
                mistake(world, model, x, y)

    check_refused(message, work)


def replace_data(parameter: nn.Parameter) -> None:
    parameter.data = parameter.data.clone()


def put_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)


SCALED = torch.amp.GradScaler("cpu")
SCALED.scale(torch.ones(()))
WRITTEN = r"parameter '0\.weight' was written outside optimizer\.step\(\)"
MOVED = "was moved out of the memory that ranks share"
AT: dict[str, dict[str, tuple[str, Mistake]]] = {}
"""When: which mistake: (what is said, how it is made)."""
AT["after share"] = {
    "initialising": (
        rf"{WRITTEN}[\s\S]*before world\.share",
        lambda world, model, optimizer: nn.init.trunc_normal_(model[0].weight),  # several ranks at once in one memory
    ),
    "loading": (
        r"was written outside optimizer\.step\(\)[\s\S]*before world\.share",
        lambda world, model, optimizer: model.load_state_dict(made(CASE)[0].state_dict()),
    ),
    "one more layer": (
        r"added, removed or replaced after world\.share: adapter\.weight",
        lambda world, model, optimizer: model.add_module("adapter", nn.Linear(FEATURES, FEATURES, bias=False)),
    ),
    "backward": ("world.backward outside a batch", lambda world, model, optimizer: world.backward(label(model, X, Y))),
    "another parameter group": (
        "a parameter group was added after world.share",
        lambda world, model, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]}),
    ),
    "a hook before steps": (
        r"optimizer\.register_step_pre_hook after world\.share",
        lambda world, model, optimizer: optimizer.register_step_pre_hook(print),
    ),
    "a hook after steps": (
        r"optimizer\.register_step_post_hook after world\.share",
        lambda world, model, optimizer: optimizer.register_step_post_hook(print),
    ),
    "sharing again": (r"world\.share was called twice", lambda world, model, optimizer: world.share(*made(CASE))),
}
AT["before the shards"] = {
    "moved parameters": (rf"parameter '0\.bias' {MOVED}", lambda world, model, optimizer: replace_data(model[0].bias)),
    "hooks that wait for gradients": (
        r"parameter '4\.bias' has a hook of register_post_accumulate_grad_hook[\s\S]*register_hook",
        lambda world, model, optimizer: model[4].bias.register_post_accumulate_grad_hook(print),
    ),
}
AT["before the step"] = {
    "a closure": (
        r"optimizer\.step was given a closure",
        lambda world, model, optimizer: optimizer.step(lambda: 1.0),
    ),
    "backward": (
        "outside a batch, or twice for a shard",
        lambda world, model, optimizer: world.backward(label(model, X, Y)),
    ),
    "clip_grad_norm_": (
        r"clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0",
        lambda world, model, optimizer: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    ),
    "clip_grad_value_": (
        "clip_grad_value_ asked for a gradient",
        lambda world, model, optimizer: nn.utils.clip_grad_value_(model.parameters(), 1.0),
    ),
    "norms of gradients": (
        r"reading p\.grad \(.*norm\) asked for a gradient[\s\S]*HINT: (?![\s\S]*clip)[\s\S]*torch\.autograd\.grad",
        lambda world, model, optimizer: print(model[0].weight.grad.norm()),
    ),
    "gradients as arrays": (
        r"reading p\.grad \(numpy\)[\s\S]*torch\.autograd\.grad",
        lambda world, model, optimizer: model[0].weight.grad.numpy(),
    ),
    "an average over ranks": (
        r"a change of p\.grad[\s\S]*optimizer\.step\(\) sums and averages",
        lambda world, model, optimizer: model[0].weight.grad.__itruediv__(world.size),
    ),
    "noise on gradients": (
        r"a change of p\.grad",
        lambda world, model, optimizer: model[0].weight.grad.__iadd__(1.0),
    ),
    "unscale_": (
        r"GradScaler asked for a gradient[\s\S]*bfloat16",
        lambda world, model, optimizer: SCALED.unscale_(optimizer),
    ),
    "a scaler's step": ("GradScaler asked for a gradient", lambda world, model, optimizer: SCALED.step(optimizer)),
    "gradients put in place": (
        r"parameter '0\.weight' was given a gradient outside world\.backward",
        lambda world, model, optimizer: put_gradients(model),
    ),
    "moved parameters": (MOVED, lambda world, model, optimizer: replace_data(model[0].bias)),
    "rates by rank": (
        r"rank 1 differs from rank 0 in the learning rates[\s\S]*batch\.loss, not the loss of a shard",
        lambda world, model, optimizer: optimizer.param_groups[0].update(lr=0.1 * (1 + world.rank)),
    ),
}
AT["after the step"] = {
    "another step": (r"optimizer\.step\(\) without gradients", lambda world, model, optimizer: optimizer.step()),
    "writing to a parameter": (
        WRITTEN,
        lambda world, model, optimizer: torch.no_grad()(model[0].weight.clamp_)(-1.0, 1.0),
    ),
    "freezing": (
        r"parameter '0\.bias' was frozen after world\.share",
        lambda world, model, optimizer: model[0].bias.requires_grad_(False),
    ),
    "another type": (
        r"model\.to\(\.\.\.\), half\(\) or double\(\) asked for a gradient[\s\S]*before world\.share",
        lambda world, model, optimizer: model.bfloat16(),
    ),
    "another type without gradients": (
        rf"parameter '0\.weight' {MOVED}[\s\S]*autocast",
        lambda world, model, optimizer: (model.zero_grad(), model.double()),
    ),
}
AT["after the epoch"] = {
    "another head": (
        r"added, removed or replaced after world\.share: 6\.bias, 6\.weight[\s\S]*before world\.share",
        lambda world, model, optimizer: model.__setitem__(6, nn.Linear(40, CLASSES)),
    ),
}


@pytest.mark.parametrize(("when", "name"), [(when, name) for when, mistakes in AT.items() for name in mistakes])
def test_around_a_step(when, name):
    message, mistake = AT[when][name]

    def work(world: World) -> None:
        model, optimizer = world.share(*made(CASE))

        def moment(now: str) -> None:
            if now == when:
                mistake(world, model, optimizer)

        moment("after share")
        for _ in range(2):
            for batch in world.batches((X, Y), 32):
                moment("before the shards")
                all_of(world, model, batch)
                moment("before the step")
                optimizer.step()
                moment("after the step")
            moment("after the epoch")

    check_refused(message, work)


@pytest.mark.parametrize("batch_size", [32, 102])
def test_a_batch_without_a_step(batch_size):
    """In the middle, and at the end."""

    def work(world: World) -> None:
        model, _ = world.share(*made(CASE))
        for batch in world.batches((X, Y), batch_size):
            all_of(world, model, batch)

    check_refused(r"optimizer\.step\(\) was not called for the last batch", work)


LEFT = {
    "left early": (
        "batch 0 of epoch 0 was left before all of its shards were gone through",
        lambda world, model, optimizer, batch: None,
    ),
    "stepped": ("without gradients", lambda world, model, optimizer, batch: optimizer.step()),
    "begun again": (
        "a batch was gone through twice",
        lambda world, model, optimizer, batch: all_of(world, model, batch),
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_batch_that_is_left_after_a_shard(name):
    message, mistake = LEFT[name]

    def work(world: World) -> None:
        for model, optimizer, batch in go(world):
            for x, y in batch:
                world.backward(label(model, x, y))
                break
            mistake(world, model, optimizer, batch)

    check_refused(message, work)


@refused("a batch was gone through twice")
def test_a_batch_gone_through_twice(world: World) -> None:
    for model, _, batch in go(world):
        all_of(world, model, batch)
        all_of(world, model, batch)


@refused("world.backward was not called for a shard")
def test_loss_backward_after_zero_grad(world: World) -> None:
    for model, _, batch in go(world):
        model.zero_grad()
        for x, y in batch:
            label(model, x, y).backward()


@refused(r"batch\.loss is not known yet")
def test_a_loss_that_is_not_known_yet(world: World) -> None:
    for *_, batch in go(world):
        print(batch.loss)


@refused(r"betas of parameter group 0 was changed[\s\S]*cycle_momentum=False")
def test_a_momentum_that_changes(world: World) -> None:
    model, optimizer = world.share(*made(CASE))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100)
    for batch in world.batches((X, Y), 32):
        train_batch(world, model, optimizer, batch)
        scheduler.step()


@refused("an optimizer that is not shared was stepped")
def test_the_unshared_optimizer(world: World) -> None:
    model, optimizer = made(CASE)
    world.share(model, optimizer)
    for batch in world.batches((X, Y), 32):
        train_batch(world, model, optimizer, batch)


@refused("differs from rank 0 in the learning rates")
def test_a_scheduler_that_looks_at_a_shard(world: World) -> None:
    model, optimizer = world.share(*made(Case(plain)))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.0)
    for batch in world.batches((X, Y), 16, epochs=8):
        for x, y in batch:
            loss = label(model, x, y)
            world.backward(loss)
        optimizer.step()
        plateau.step(loss.item())
