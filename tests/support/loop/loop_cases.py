"""What the tests of loops train: small networks, made-up data, and a loop of a user's own."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unisono
import unisono.loop.batches  # ranks are forked: what is imported here they need not import
from unisono.models.torch.nets import build
from unisono.world import World

torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks

FEATURES, CLASSES, ROWS, VOCABULARY, PLACES = 12, 4, 102, 11, 8
RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.standard_normal((ROWS, FEATURES)).astype(np.float32))
Y = X[:, :CLASSES].argmax(1)
IMAGES = torch.from_numpy(RNG.standard_normal((ROWS, 1, 8, 8)).astype(np.float32))
TOKENS = torch.from_numpy(RNG.integers(0, VOCABULARY, (ROWS, PLACES + 1)))
RANKS = (2, 3, 4, 8)
TIMEOUT_S = 30.0


def noisy() -> nn.Module:
    """Dropout and batch norm; large enough for a vector of several blocks."""
    return nn.Sequential(
        nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 40), nn.ReLU(),
        nn.Linear(40, CLASSES),
    )  # fmt: skip


def plain() -> nn.Module:
    """The loss of a batch is the mean over its shards: neither dropout nor batch norm."""
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 40), nn.Tanh(), nn.Linear(40, CLASSES))


def convolutional() -> nn.Module:
    return build("cnn", "4,6", (8, 8), CLASSES, dropout=0.2)


def wide_residual() -> nn.Module:
    return build("wideresnet", "1", (8, 8), CLASSES)


def gpt() -> nn.Module:
    return build("gpt", "layers=1,heads=2,width=16", (PLACES,), VOCABULARY, dropout=0.1)


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def label(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


@dataclass(frozen=True)
class Case:
    """A model, its data and how it is trained."""

    net: Callable[[], nn.Module] = noisy
    data: Any = (X, Y)
    loss: Callable[..., Tensor] = label
    optimizer: Callable[[Any], torch.optim.Optimizer] = adamw
    clip: float = 0.0
    bf16: bool = False
    batches: dict[str, Any] = field(default_factory=lambda: {"batch_size": 32, "epochs": 2})


CASE = Case()


def made(case: Case) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = case.net()
    return model, case.optimizer(model.parameters())


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def train(world: World, case: Case) -> dict[str, Any]:
    """The user's own loop, with a scheduler and a log after every step."""
    model, optimizer = world.share(*made(case), clip=case.clip)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    losses, rates = [], []
    for batch in world.batches(case.data, **case.batches):
        for shard in batch:
            with torch.autocast("cpu", torch.bfloat16, enabled=case.bf16):
                loss = case.loss(model, *(shard if isinstance(shard, tuple | list) else [shard]))
            world.backward(loss)
        optimizer.step()
        scheduler.step()
        losses.append(batch.loss)
        rates.append(optimizer.param_groups[0]["lr"])
    return {"digest": digest(model), "losses": losses, "rates": rates}


def on(ranks: int, work: Callable[[World], Any]) -> list[Any]:
    """What each rank gave back."""
    found: list[Any] = unisono.run(work, ranks, start="fork", timeout_s=TIMEOUT_S)
    return found


def outcome(ranks: int, case: Case) -> dict[str, Any]:
    """What all of so many ranks ended with."""
    first, *others = on(ranks, lambda world: train(world, case))
    assert all(other == first for other in others), "ranks do not agree"
    found: dict[str, Any] = first
    return found


def check_same_bits(case: Case, counts: Iterable[int] = RANKS) -> dict[str, Any]:
    one = outcome(1, case)
    for ranks in counts:
        assert outcome(ranks, case) == one, f"{ranks} ranks"
    return one


def go(world: World, case: Case = CASE, *, share: dict[str, Any] | None = None, **batches: Any) -> Iterator[Any]:
    """A loop in which nothing is wrong, a batch at a time: (model, optimizer, batch)."""
    model, optimizer = world.share(*made(case), **share or {})
    for batch in world.batches(case.data, **{"batch_size": 32} | batches):
        yield model, optimizer, batch


def walk(world: World, case: Case = CASE, **given: Any) -> Iterator[Any]:
    """The same, after each step."""
    for model, optimizer, batch in go(world, case, **given):
        train_batch(world, model, optimizer, batch)
        yield model, optimizer, batch


def trained(world: World, case: Case = CASE, **given: Any) -> nn.Module:
    """The model when all batches are done."""
    *_, (model, _, _) = walk(world, case, **given)
    return model


def all_of(world: World, model: nn.Module, batch: Any) -> None:
    for x, y in batch:
        world.backward(label(model, x, y))


def train_batch(world: World, model: nn.Module, optimizer: Any, batch: Any) -> None:
    all_of(world, model, batch)
    optimizer.step()
