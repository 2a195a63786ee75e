"""A module whose calls depend on those before is refused by name; one that only shows its last call is taken."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import spectral_norm
from torch.nn.utils.parametrizations import orthogonal
from torch.nn.utils.parametrizations import spectral_norm as parametrized_spectral_norm
from torch.nn.utils.parametrizations import weight_norm as parametrized_weight_norm

from unisono.errors import UserError
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel

FEATURES, OUTPUTS = 13, 5
TASK = Task((FEATURES,), OUTPUTS)
COUNTED = [0]
"""A global, which no attribute leads to."""


class Doing(nn.Module):
    """Calls `what` with itself and the samples in every forward, inside a module of modules."""

    def __init__(self, what, kept=None) -> None:
        super().__init__()
        self.top, self.what, self.kept = nn.Linear(FEATURES, OUTPUTS), what, kept

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.what(self, x))


def made(what, kept=lambda: None):
    return lambda: nn.Sequential(nn.Tanh(), Doing(what, kept()))


def counts(module, x):
    module.kept += 1
    return x / module.kept


def counts_unread(module, x):
    module.kept += 1
    return x


def toggles(module, x):
    module.kept = not module.kept
    return x


def gathers(module, x):
    module.kept.append(x.mean().item())
    return x


def carries(module, x):
    module.kept = x + 0.5 * module.kept
    return module.kept


def compares(module, x):
    """With the samples of the call before, which it keeps as they are."""
    before, module.kept = module.kept, x.clone()
    return x if before is None else x - before.mean()


def starts(module, x):
    """Its first samples decide."""
    if module.kept is None:
        module.kept = float(x.mean())
    return x * module.kept


def draws(module, x):
    return x + torch.rand(x.shape, generator=module.kept)


def draws_once(module, x):
    """For each number of samples: whichever shard comes first decides what all of them see."""
    if len(x) not in module.kept:
        module.kept[len(x)] = torch.rand(len(x), 1)
    return x + module.kept[len(x)]


@cache
def drawn_once(rows):
    return torch.rand(rows, 1)


def draws_once_outside(module, x):
    return x + drawn_once(len(x))


def counts_outside(module, x):
    COUNTED[0] += 1
    return x * COUNTED[0]


KEEPS = r"\('1' of Sequential\) keeps state in the attribute 'kept': "
REFUSED = [
    (made(counts, lambda: 0), KEEPS + "0 before a call, 1 after it; ranks call the module in different numbers"),
    (made(counts_unread, lambda: 0), KEEPS + "0 before a call, 1 after it"),
    (made(toggles, lambda: False), KEEPS + "False before a call, True after it"),
    (made(gathers, list), KEEPS + "a length of 0 before a call, 1 after it"),
    (made(carries, lambda: torch.zeros(1)), KEEPS + r"tensor of shape \(1,\), float32: 0.0 before a call"),
    (made(compares), "gave two outputs for the same samples"),
    (made(starts), KEEPS + r"None before a call, 0\.\d+ after it"),
    (made(draws, torch.Generator), KEEPS + ".* with other values after a call"),
    (made(draws_once, dict), "Sequential draws random numbers in one call and not in the next"),
    (made(draws_once_outside), "Sequential draws random numbers in one call and not in the next"),
    (made(counts_outside), "Sequential gave two outputs for the same samples, parameters, buffers and random numbers"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_state_between_calls_is_refused_by_name(make, message):
    drawn_once.cache_clear()
    with pytest.raises(UserError, match=f"(?s){message}.*HINT:.*register_buffer"):
        TorchModel(make, TASK)


def test_state_of_samples_that_are_tokens_is_seen():
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.calls = nn.Embedding(11, 11), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.table(x)

    with pytest.raises(UserError, match="Text keeps state in the attribute 'calls': 0 before a call, 1 after it"):
        TorchModel(Text, Task((7,), 11, tokens=True))


def shows(module, x):
    """What is looked at afterwards, and never read."""
    module.output, module.shape, module.maps = x.tanh(), tuple(x.shape), {"mean": [x.mean().item()]}
    module.array, module.noise = x.detach().numpy().copy(), np.random.rand()
    return torch.nn.functional.dropout(x, 0.3)


def caches(module, x):
    """A table that depends on the shape of samples alone."""
    if module.kept is None:
        module.kept = torch.arange(x.shape[-1]) / x.shape[-1]
    return x + module.kept


def counts_in_a_buffer(module, x):
    if "steps" not in module._buffers:
        raise AssertionError
    module.steps += 1
    return x / module.steps


def with_buffer():
    module = Doing(counts_in_a_buffer)
    module.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    return module


class Layers(nn.Module):
    """Samples as a sequence, an image and a row, for layers of every kind."""

    def __init__(self, layer, shape) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape
        self.first = nn.Linear(FEATURES, int(np.prod(shape)))
        self.last = nn.LazyLinear(OUTPUTS)
        self(torch.zeros(2, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(self.first(x).view(len(x), *self.shape))
        return self.last((z[0] if isinstance(z, tuple) else z).flatten(1))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        z, self.weights = self.attention(x, x, x)
        return z


SEQUENCE, IMAGE = (5, 6), (2, 7, 7)
LAYERS = [
    (lambda: nn.RNN(6, 3, batch_first=True), SEQUENCE),
    (lambda: nn.LSTM(6, 3, 2, batch_first=True, dropout=0.2, bidirectional=True), SEQUENCE),
    (lambda: nn.GRU(6, 3, batch_first=True), SEQUENCE),
    (Attending, SEQUENCE),
    (lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), SEQUENCE),
    (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2), SEQUENCE),
    (lambda: nn.LayerNorm(6), SEQUENCE),
    (lambda: nn.Conv1d(5, 3, 3), SEQUENCE),
    (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2)), IMAGE),
    (lambda: nn.Sequential(nn.GroupNorm(1, 2), nn.InstanceNorm2d(2, track_running_stats=True), nn.PReLU()), IMAGE),
    (lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 3), nn.Dropout2d(0.3), nn.Upsample(scale_factor=2)), IMAGE),
    (lambda: nn.LazyConv2d(3, 3), IMAGE),
    (lambda: nn.FractionalMaxPool2d(2, output_size=3), IMAGE),
    (nn.RReLU, (6,)),
    (lambda: nn.BatchNorm1d(6, momentum=None), (6,)),
    (lambda: spectral_norm(nn.Linear(6, 6)), (6,)),
    (lambda: parametrized_spectral_norm(nn.Linear(6, 6)), (6,)),
    (lambda: parametrized_weight_norm(nn.Linear(6, 6)), (6,)),
    (lambda: orthogonal(nn.Linear(6, 6)), (6,)),
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_torchs_own_layers_are_taken(layer, shape):
    TorchModel(lambda: Layers(layer(), shape), TASK)


@pytest.mark.parametrize("make", [made(shows), made(caches), with_buffer])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_does_not_depend_on_earlier_calls_is_taken(make, precision):
    TorchModel(make, TASK, precision)


def test_synchronised_batch_norms_are_taken_beside_attributes_that_show_the_last_call():
    def make() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(FEATURES), Doing(shows))

    assert TorchModel(make, TASK, sync_batchnorm=True).exchange_width == 1 + 2 * FEATURES


def test_the_trial_takes_two_calls_and_more_only_for_a_module_that_changes_its_attributes():
    calls = []

    def count(module, x):
        calls.append(id(module))
        return x

    def show(module, x):
        module.shown = x.clone()
        return count(module, x)

    TorchModel(made(count), TASK)
    assert len(calls) == 2
    calls.clear()
    TorchModel(made(show), TASK)
    assert len(calls) == 5
    assert len(set(calls)) == 2
