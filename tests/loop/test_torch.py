"""Against a plain torch loop on one process: the same training, to float rounding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.loop.loop_cases import (
    FEATURES,
    ROWS,
    TOKENS,
    VOCABULARY,
    Case,
    X,
    Y,
    go,
    gpt,
    label,
    made,
    noisy,
    on,
    plain,
    train_batch,
    trained,
)
from unisono.data.shards import ShardPlan
from unisono.world import World

pytestmark = pytest.mark.forked

BATCH, EPOCHS = 32, 3
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def by_torch(case: Case, factor: float = 1.0) -> list[Tensor]:
    """Whole batches in the order in which the ranks take them; `factor` spoils it."""
    model, optimizer = made(case)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    plan = ShardPlan(ROWS, BATCH, 8, seed=0)
    for epoch in range(EPOCHS):
        for rows in torch.from_numpy(plan.order(epoch)).split(BATCH):
            optimizer.zero_grad()
            (factor * label(model, X[rows], Y[rows])).backward()
            if case.clip:
                nn.utils.clip_grad_norm_(model.parameters(), case.clip)
            optimizer.step()
            scheduler.step()
    return [tensor.detach() for tensor in model.parameters()]


def by_ranks(case: Case, ranks: int) -> list[Tensor]:
    def work(world: World) -> list[Any]:
        model, optimizer = made(case)
        early = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)  # made before `share`: does the same
        model, optimizer = world.share(model, optimizer, clip=case.clip)
        loader = world.batches((X, Y), batch_size=BATCH)
        for _ in range(EPOCHS):
            for batch in loader:
                optimizer.zero_grad()
                train_batch(world, model, optimizer, batch)
                early.step()
        return [tensor.detach().numpy() for tensor in model.parameters()]

    return [torch.from_numpy(values.copy()) for values in on(ranks, work)[0]]


def furthest(one: list[Tensor], two: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, two, strict=True))


def test_optimizers() -> None:
    for name, optimizer in OPTIMIZERS.items():
        for ranks in (1, 3):
            case = Case(plain, optimizer=optimizer)
            far = furthest(by_ranks(case, ranks), by_torch(case))
            assert far < 2e-4, f"{name} on {ranks} ranks is {far} away"


def test_clipping() -> None:
    for name in ("momentum", "adamw"):
        case = Case(plain, optimizer=OPTIMIZERS[name], clip=0.3)
        assert furthest(by_ranks(case, 2), by_torch(case)) < 2e-4, name
        unclipped = Case(plain, optimizer=OPTIMIZERS[name])
        assert furthest(by_torch(case), by_torch(unclipped)) > 2e-3, f"{name}: clipping had no effect"


def test_a_wrong_factor_would_be_seen() -> None:
    """The mean instead of the sum over 2 ranks, say: else the checks above could not fail."""
    case = Case(plain, optimizer=OPTIMIZERS["momentum"])
    assert furthest(by_torch(case, factor=0.5), by_torch(case)) > 2e-2
    assert furthest(by_torch(case, factor=1.02), by_torch(case)) > 2e-3


def test_gradient_accumulation_is_a_larger_batch_in_more_shards() -> None:
    """Two micro-batches of 16 before each update: a batch of 32 whose shards are as small as memory wants them."""
    case, micro = Case(plain, optimizer=OPTIMIZERS["momentum"]), BATCH // 2
    model, optimizer = made(case)
    for rows in torch.from_numpy(ShardPlan(ROWS, BATCH, 1, seed=0).order(0)).split(BATCH):
        optimizer.zero_grad()
        for part in rows.split(micro):
            (label(model, X[part], Y[part]) * (len(part) / len(rows))).backward()
        optimizer.step()

    def work(world: World) -> list[Any]:
        shared, together = world.share(*made(case), shards=16)
        sizes = []
        for batch in world.batches((X, Y), batch_size=BATCH):
            for x, y in batch:
                sizes.append(len(x))
                world.backward(label(shared, x, y))
            together.step()
        return [max(sizes), [tensor.detach().numpy() for tensor in shared.parameters()]]

    (largest, values), _ = on(2, work)
    assert largest == 2
    expected = [tensor.detach() for tensor in model.parameters()]
    assert furthest([torch.from_numpy(v.copy()) for v in values], expected) < 2e-4


def test_a_gradient_scaler_that_is_off_stays_in_the_script() -> None:
    """As scripts have it that may also run on a GPU: torch.amp.GradScaler(enabled=False)."""

    def work(scaled: bool) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            scaler = torch.amp.GradScaler("cpu", enabled=False)
            for model, optimizer, batch in go(world, batch_size=BATCH):
                for x, y in batch:
                    loss = label(model, x, y)
                    world.backward(scaler.scale(loss) if scaled else loss)
                if scaled:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
            return [tensor.detach().numpy().tobytes().hex() for tensor in model.parameters()]

        return train

    assert on(2, work(scaled=True)) == on(2, work(scaled=False))


class Buffers(nn.Module):
    """Batch norm, a constant table, a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = noisy()
        self.inner[3] = nn.Identity()  # dropout draws otherwise
        self.register_buffer("table", torch.linspace(0.5, 1.5, FEATURES))
        self.register_buffer("mask", torch.arange(FEATURES) % 3 > 0)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.table * self.mask)


def test_buffers() -> None:
    """One shard is the whole batch: running statistics, too, are those of torch."""
    case = Case(Buffers, optimizer=OPTIMIZERS["sgd"])

    def work(world: World) -> dict[str, Any]:
        model = trained(world, case, share={"shards": 1}, batch_size=ROWS, epochs=3, shuffle=False)
        return {name: tensor.numpy() for name, tensor in model.state_dict().items() if tensor.dtype != torch.bool}

    model, optimizer = made(case)
    for _ in range(3):
        optimizer.zero_grad()
        label(model, X, Y).backward()
        optimizer.step()
    (found,) = on(1, work)
    for name, values in found.items():
        torch.testing.assert_close(torch.from_numpy(values.copy()), model.state_dict()[name], rtol=1e-5, atol=1e-6)


def token_means(model: nn.Module, tokens: Tensor) -> tuple[Tensor, int]:
    """The mean over tokens that count; in each row another number of them."""
    wanted = tokens[:, 1:].clone()
    wanted[wanted > VOCABULARY // 2] = -100
    scores = model(tokens[:, :-1]).flatten(0, 1)
    return F.cross_entropy(scores, wanted.flatten(), ignore_index=-100), int((wanted != -100).sum())


def test_weights_of_token_means() -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = gpt().eval()  # without dropout
        return model, torch.optim.SGD(model.parameters(), lr=0.5)

    def work(weighted: bool) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            model, optimizer = world.share(*make())
            losses = []
            for batch in world.batches(TOKENS, batch_size=ROWS, epochs=3, shuffle=False):
                for tokens in batch:
                    loss, count = token_means(model, tokens)
                    world.backward(loss, weight=count if weighted else None)
                optimizer.step()
                losses.append(batch.loss)
            return [losses, [tensor.detach().numpy() for tensor in model.parameters()]]

        return train

    model, optimizer = make()
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss, _ = token_means(model, TOKENS)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for ranks in (1, 3):
        (found, values), *_ = on(ranks, work(weighted=True))
        assert max(abs(a - b) for a, b in zip(found, losses, strict=True)) < 1e-5, (found, losses)
        far = furthest([torch.from_numpy(v.copy()) for v in values], [p.detach() for p in model.parameters()])
        assert far < 1e-5, far
    (unweighted, _), *_ = on(2, work(weighted=False))
    assert max(abs(a - b) for a, b in zip(unweighted, losses, strict=True)) > 1e-4, "the weights had no effect"


def test_a_weight_that_bfloat16_cannot_hold() -> None:
    def work(world: World) -> float:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=1.0), shards=1)
        for batch in world.batches(torch.ones(1, 1), batch_size=1):
            for x in batch:
                world.backward(model(x).mean().bfloat16(), weight=257)
            optimizer.step()
        return model.weight.item()

    assert on(1, work) == [-1.0]


def test_sparse_gradients() -> None:
    def work(sparse: bool) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            torch.manual_seed(0)
            model = nn.EmbeddingBag(VOCABULARY, 3, sparse=sparse)
            model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=1.0))
            for batch in world.batches(TOKENS, batch_size=32):
                for tokens in batch:
                    world.backward(model(tokens).square().mean())
                optimizer.step()
            return model.weight.tolist()

        return train

    sparse, dense = (torch.tensor(on(2, work(sparse))[0]) for sparse in (True, False))
    torch.testing.assert_close(sparse, dense)
