"""Who asks for gradients, computes them alone or steps alone is refused: a message with a hint on every rank."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from support.loop.loop_cases import Case, X, Y, all_of, go, label, made, on, plain
from unisono.world import World

CASE = Case()


def refuse_clip_grad_norm(world: World) -> None:
    r"""clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def refuse_clip_grad_norm_in_the_inner_loop(world: World) -> None:
    r"""clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0"""
    for model, _, batch in go(world):
        for x, y in batch:
            model.zero_grad()
            world.backward(label(model, x, y))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def refuse_clip_grad_value(world: World) -> None:
    """clip_grad_value_ asked for a gradient"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)


def refuse_own_norms(world: World) -> None:
    r"""reading p\.grad \(.*norm\) asked for a gradient[\s\S]*HINT: (?![\s\S]*clip)[\s\S]*torch\.autograd\.grad"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        print(model[0].weight.grad.norm())


def refuse_gradients_as_arrays(world: World) -> None:
    r"""reading p\.grad \(numpy\)[\s\S]*torch\.autograd\.grad"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        model[0].weight.grad.numpy()


def refuse_an_average_over_ranks(world: World) -> None:
    r"""a change of p\.grad[\s\S]*optimizer\.step\(\) sums and averages"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        model[0].weight.grad /= world.size


def refuse_noise_on_gradients(world: World) -> None:
    """a change of p.grad"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        model[0].weight.grad += 1.0


def check_gradients_of_a_shard_can_be_looked_at() -> None:
    """As the hint says; the training is that of somebody who does not look."""

    def work(look: bool) -> Callable[[World], list[float]]:
        def train(world: World) -> list[float]:
            model, optimizer = world.share(*made(CASE))
            found = 0.0
            for batch in world.batches((X, Y), 102):
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


def refuse_unscale(world: World) -> None:
    r"""GradScaler asked for a gradient[\s\S]*bfloat16"""
    scaler = torch.amp.GradScaler("cpu")
    for model, optimizer, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            scaler.scale(torch.ones(()))
        scaler.unscale_(optimizer)


def refuse_scaler_step(world: World) -> None:
    """GradScaler asked for a gradient"""
    scaler = torch.amp.GradScaler("cpu")
    for model, optimizer, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            scaler.scale(torch.ones(()))
        scaler.step(optimizer)


def refuse_scaled_loss(world: World) -> None:
    r"""loss\.backward\(\) was called"""
    for model, _, batch in go(world):
        for x, y in batch:
            torch.amp.GradScaler("cpu").scale(label(model, x, y)).backward()


def refuse_loss_backward(world: World) -> None:
    r"""loss\.backward\(\) was called[\s\S]*world\.backward\(loss\)"""
    for model, _, batch in go(world):
        for x, y in batch:
            label(model, x, y).backward()


def refuse_loss_backward_after_zero_grad(world: World) -> None:
    """world.backward was not called for a shard"""
    for model, _, batch in go(world):
        model.zero_grad()
        for x, y in batch:
            label(model, x, y).backward()


def refuse_the_unshared_optimizer(world: World) -> None:
    """an optimizer that is not shared was stepped"""
    model, optimizer = made(CASE)
    world.share(model, optimizer)
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)
        optimizer.step()


def refuse_another_loss_before(world: World) -> None:
    r"""parameter '0\.weight' was given a gradient outside world\.backward[\s\S]*add losses up"""
    for model, optimizer, batch in go(world):
        for x, y in batch:
            model.zero_grad()
            model(x).square().mean().backward()
            world.backward(label(model, x, y))
        optimizer.step()


def refuse_a_gradient_put_in_place(world: World) -> None:
    r"""parameter '0\.weight' was given a gradient outside world\.backward"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()


def check_gradients_of_an_earlier_life_are_forgotten() -> None:
    def work(world: World) -> None:
        model, optimizer = made(CASE)
        label(model, X, Y).backward()
        model, optimizer = world.share(model, optimizer)
        for batch in world.batches((X, Y), 32):
            all_of(world, model, batch)
            optimizer.step()

    on(2, work)


def refuse_hooks_that_wait_for_gradients(world: World) -> None:
    r"""parameter '0\.weight' has a hook of register_post_accumulate_grad_hook"""
    model, optimizer = made(CASE)
    model[0].weight.register_post_accumulate_grad_hook(print)
    world.share(model, optimizer)


def refuse_hooks_that_wait_for_gradients_later(world: World) -> None:
    r"""parameter '4\.bias' has a hook of register_post_accumulate_grad_hook[\s\S]*register_hook"""
    for model, optimizer, batch in go(world):
        model[4].bias.register_post_accumulate_grad_hook(print)
        all_of(world, model, batch)
        optimizer.step()


def check_hooks_of_tensors_are_called() -> None:
    def work(world: World) -> int:
        model, optimizer = made(CASE)
        calls: list[int] = []
        model[0].weight.register_hook(lambda gradient: calls.append(1))
        model, optimizer = world.share(model, optimizer)
        for batch in world.batches((X, Y), 102):
            all_of(world, model, batch)
            optimizer.step()
        return len(calls)

    assert sum(on(2, work)) == 8


def refuse_a_reentrant_checkpoint(world: World) -> None:
    r"""a re-entrant checkpoint[\s\S]*use_reentrant=False"""
    for model, optimizer, batch in go(world):
        for x, y in batch:
            inner = checkpoint(model[:4], x.requires_grad_(), use_reentrant=True)
            world.backward(label(model[4:], inner, y))
        optimizer.step()


def refuse_a_reentrant_checkpoint_of_everything(world: World) -> None:
    r"""a re-entrant checkpoint[\s\S]*use_reentrant=False"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(
                label(lambda x, model=model: checkpoint(model, x, use_reentrant=True), x.requires_grad_(), y)
            )


def refuse_a_reentrant_checkpoint_in_the_middle(world: World) -> None:
    r"""a re-entrant checkpoint[\s\S]*use_reentrant=False"""
    for model, _, batch in go(world):
        for x, y in batch:
            inner = checkpoint(model[4:], model[:4](x), use_reentrant=True)
            world.backward(nn.functional.cross_entropy(inner, y))


def refuse_a_loss_of_another_model(world: World) -> None:
    """the loss of a shard depends on no parameter that is trained"""
    other = plain()
    for _, _, batch in go(world):
        for x, y in batch:
            world.backward(label(other, x, y))


def check_a_graph_from_before_a_step_is_refused_by_torch() -> None:
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


def check_a_shard_of_no_weight() -> None:
    """A shard without a single token that counts, say: the mean is over the others."""

    def work(weight: float) -> Callable[[World], list[float]]:
        def train(world: World) -> list[float]:
            model, optimizer = world.share(*made(Case(plain)), shards=2)
            found = []
            for batch in world.batches((X, Y), 102, shuffle=False):
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
