"""What is refused in the loop itself: each a message with a hint on every rank, and no hang."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from support.loop.loop_cases import CASE, CLASSES, FEATURES, Case, X, Y, all_of, go, label, made, plain, train_batch
from support.loop.refusals import check_refused, refused
from unisono.world import World

pytestmark = pytest.mark.forked

Mistake = Callable[..., object]
"""In the tables below w, m and o are the world, the model and the optimizer."""


def reentrant(model, x, y, at: slice):
    """The loss, with the layers `at` in a re-entrant checkpoint."""
    before = model[: at.start](x.requires_grad_()) if at.start else x.requires_grad_()
    inner = checkpoint(model[at], before, use_reentrant=True)
    return label(model[at.stop :] if at.stop else nn.Identity(), inner, y)


SHARD = {
    "world.backward was not called for a shard": lambda w, m, x, y: label(m, x, y),
    "outside a batch, or twice for a shard": lambda w, m, x, y: [w.backward(label(m, x, y)) for _ in range(2)],
    r"world\.backward was given a tensor of shape \(\d+, 4\)[\s\S]*mean loss": lambda w, m, x, y: w.backward(m(x)),
    r"world\.backward was given a float": lambda w, m, x, y: w.backward(label(m, x, y).item()),
    "depends on no parameter that is trained": lambda w, m, x, y: w.backward(label(m, x, y).detach()),
    "the loss of a shard depends on no parameter that is trained": lambda w, m, x, y: w.backward(label(plain(), x, y)),
    "all shards of a batch weigh 0": lambda w, m, x, y: w.backward(label(m, x, y), weight=0),
    "weight is -1": lambda w, m, x, y: w.backward(label(m, x, y), weight=-1),
    "a shard of weight 0 has the loss nan": lambda w, m, x, y: w.backward(label(m, x, y) * float("nan"), weight=0),
    r"clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0": lambda w, m, x, y: (
        m.zero_grad(),
        w.backward(label(m, x, y)),
        nn.utils.clip_grad_norm_(m.parameters(), 1.0),
    ),
    r"loss\.backward\(\) was called": lambda w, m, x, y: torch.amp.GradScaler("cpu").scale(label(m, x, y)).backward(),
    r"loss\.backward\(\) was called[\s\S]*world\.backward\(loss\)": lambda w, m, x, y: label(m, x, y).backward(),
    r"parameter '0\.weight' was given a gradient outside world\.backward[\s\S]*add losses up": lambda w, m, x, y: (
        m.zero_grad(),
        m(x).square().mean().backward(),
        w.backward(label(m, x, y)),
    ),
}


def check_with_a_shard(message: str, mistake: Mistake) -> None:
    def work(world: World) -> None:
        for model, _, batch in go(world):
            for x, y in batch:
                mistake(world, model, x, y)

    check_refused(message, work)


@pytest.mark.parametrize("message", SHARD)
def test_with_a_shard(message):
    check_with_a_shard(message, SHARD[message])


@pytest.mark.parametrize("at", [slice(0, 4), slice(4, None), slice(0, None)], ids=["first", "last", "of everything"])
def test_a_re_entrant_checkpoint(at):
    message = r"a re-entrant checkpoint[\s\S]*use_reentrant=False"
    check_with_a_shard(message, lambda w, m, x, y: w.backward(reentrant(m, x, y, at)))


def replace_data(parameter: nn.Parameter) -> None:
    parameter.data = parameter.data.clone()


def put_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)


SCALED = torch.amp.GradScaler("cpu")
SCALED.scale(torch.ones(()))
WRITTEN = r"parameter '0\.weight' was written outside optimizer\.step\(\)"
MOVED = "was moved out of the memory that ranks share"
NORM = r"reading p\.grad \(.*norm\) asked for a gradient[\s\S]*HINT: (?![\s\S]*clip)[\s\S]*torch\.autograd\.grad"
AT: dict[str, dict[str, Mistake]] = {}
"""When: what is said of which mistake."""
AT["after share"] = {
    rf"{WRITTEN}[\s\S]*before world\.share": lambda w, m, o: nn.init.trunc_normal_(m[0].weight),
    r"was written outside optimizer\.step\(\)[\s\S]*before world\.share": lambda w, m, o: m.load_state_dict(
        made(CASE)[0].state_dict()
    ),
    r"added, removed or replaced after world\.share: adapter\.weight": lambda w, m, o: m.add_module(
        "adapter", nn.Linear(FEATURES, FEATURES, bias=False)
    ),
    "world.backward outside a batch": lambda w, m, o: w.backward(label(m, X, Y)),
    "a parameter group was added after world.share": lambda w, m, o: o.add_param_group(
        {"params": [nn.Parameter(torch.zeros(1))]}
    ),
    r"optimizer\.register_step_pre_hook after world\.share": lambda w, m, o: o.register_step_pre_hook(print),
    r"optimizer\.register_step_post_hook after world\.share": lambda w, m, o: o.register_step_post_hook(print),
    r"world\.share was called twice": lambda w, m, o: w.share(*made(CASE)),
}
AT["before the shards"] = {
    rf"parameter '0\.bias' {MOVED}": lambda w, m, o: replace_data(m[0].bias),
    r"parameter '4\.bias' has a hook of register_post_accumulate_grad_hook[\s\S]*register_hook": lambda w, m, o: m[
        4
    ].bias.register_post_accumulate_grad_hook(print),
}
AT["before the step"] = {
    r"optimizer\.step was given a closure": lambda w, m, o: o.step(lambda: 1.0),
    "outside a batch, or twice for a shard": lambda w, m, o: w.backward(label(m, X, Y)),
    r"clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0": lambda w, m, o: nn.utils.clip_grad_norm_(
        m.parameters(), 1.0
    ),
    "clip_grad_value_ asked for a gradient": lambda w, m, o: nn.utils.clip_grad_value_(m.parameters(), 1.0),
    NORM: lambda w, m, o: print(m[0].weight.grad.norm()),
    r"reading p\.grad \(numpy\)[\s\S]*torch\.autograd\.grad": lambda w, m, o: m[0].weight.grad.numpy(),
    r"a change of p\.grad[\s\S]*optimizer\.step\(\) sums and averages": lambda w, m, o: m[0].weight.grad.__itruediv__(
        w.size
    ),
    r"a change of p\.grad": lambda w, m, o: m[0].weight.grad.__iadd__(1.0),
    r"GradScaler asked for a gradient[\s\S]*bfloat16": lambda w, m, o: SCALED.unscale_(o),
    "GradScaler asked for a gradient": lambda w, m, o: SCALED.step(o),
    r"parameter '0\.weight' was given a gradient outside world\.backward": lambda w, m, o: put_gradients(m),
    MOVED: lambda w, m, o: replace_data(m[0].bias),
    r"rank 1 differs from rank 0 in the learning rates[\s\S]*batch\.loss, not the loss of a shard": lambda w, m, o: (
        o.param_groups[0].update(lr=0.1 * (1 + w.rank))
    ),
}
AT["after the step"] = {
    r"optimizer\.step\(\) without gradients": lambda w, m, o: o.step(),
    WRITTEN: lambda w, m, o: torch.no_grad()(m[0].weight.clamp_)(-1.0, 1.0),
    r"parameter '0\.bias' was frozen after world\.share": lambda w, m, o: m[0].bias.requires_grad_(False),
    r"model\.to\(\.\.\.\), half\(\) or double\(\) asked for a gradient[\s\S]*before world\.share": lambda w, m, o: (
        m.bfloat16()
    ),
    rf"parameter '0\.weight' {MOVED}[\s\S]*autocast": lambda w, m, o: (m.zero_grad(), m.double()),
}
AT["after the epoch"] = {
    r"added, removed or replaced after world\.share: 6\.bias, 6\.weight[\s\S]*before world\.share": lambda w, m, o: (
        m.__setitem__(6, nn.Linear(40, CLASSES))
    )
}


@pytest.mark.parametrize(("when", "message"), [(when, told) for when, mistakes in AT.items() for told in mistakes])
def test_around_a_step(when, message):
    def work(world: World) -> None:
        model, optimizer = world.share(*made(CASE))

        def moment(now: str) -> None:
            if now == when:
                AT[when][message](world, model, optimizer)

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
        for model, _, batch in go(world, CASE, batch_size=batch_size):
            all_of(world, model, batch)

    check_refused(r"optimizer\.step\(\) was not called for the last batch", work)


LEFT = {
    "batch 0 of epoch 0 was left before all of its shards were gone through": lambda w, m, o, batch: None,
    "without gradients": lambda w, m, o, batch: o.step(),
    "a batch was gone through twice": lambda w, m, o, batch: all_of(w, m, batch),
}


@pytest.mark.parametrize("message", LEFT)
def test_a_batch_that_is_left_after_a_shard(message):
    def work(world: World) -> None:
        for model, optimizer, batch in go(world):
            for x, y in batch:
                world.backward(label(model, x, y))
                break
            LEFT[message](world, model, optimizer, batch)

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
