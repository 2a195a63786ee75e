"""Networks with which `kernel_check.py` tries torch's kernels: each kind of layer once, in odd sizes.

    for name, case in torch_cases(seed=7, precision="bf16").items(): dependences(case.make(), *case[1:])

The one idea: small networks of every kind of layer stand for those that users bring.
Limits: custom kernels of users are not here; a run tries its own network as well.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from torch import Tensor, nn

from unisono.models.base import Shape
from unisono.models.kernel_check import Case, samples
from unisono.models.torch.build import build
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel


def torch_cases(seed: int, precision: str = "fp32") -> dict[str, Case]:
    """By name; sizes are odd, and drawn from `seed`."""
    rng = np.random.default_rng(seed)

    def draw(*sizes: int) -> int:
        return int(rng.choice(sizes))

    features, outputs, batch = draw(1, 3, 13, 30, 31, 97), draw(2, 3, 5, 10), draw(2, 3, 7, 24, 50)
    hidden, image = draw(1, 5, 17, 33, 64), (draw(9, 11, 13), draw(9, 11, 13))
    kinds: dict[str, tuple[Shape, Callable[[Task], TorchModel]]] = {
        "linear": ((features,), _own(lambda: nn.Linear(features, outputs), precision)),
        "convolution": (image, partial(build, f"cnn:{draw(1, 3, 5)},4", precision=precision)),
        "group norm": (image, _own(lambda: _grouped(image, outputs), precision)),
        "recurrent": (image, _own(lambda: _Recurrent(image[1], hidden, outputs), precision)),
        "attention": (image, _own(lambda: _Attending(image[1], outputs), precision)),
    }
    for activation in ("relu", "tanh", "sigmoid", "gelu"):
        made = partial(build, f"mlp:{hidden},7", activation=activation, dropout=0.25, precision=precision)
        kinds[f"mlp, {activation}, dropout"] = (features,), made
    kinds["batch norm"] = (features,), partial(build, f"bn-mlp:{hidden}", precision=precision)
    found = {}
    for name, (shape, make) in kinds.items():
        width = int(np.prod(shape))
        x, y = samples((batch, width), outputs, seed)
        found[name] = Case(partial(make, Task(shape, outputs)), x, y, samples((batch + 2, width), outputs, seed + 1))
    return found | {"transformer": _transformer(seed, precision)}


def _transformer(seed: int, precision: str) -> Case:
    """Embeddings, layer norm, attention, GELU."""
    rng = np.random.default_rng(seed)
    length, words = int(rng.choice([3, 7, 12])), 11
    tokens = rng.integers(0, words, (5, 3, length))
    task = Task((length,), words, tokens=True)
    other = rng.integers(0, words, (2, 5, length))
    spec = "gpt:layers=1,heads=2,width=12"
    return Case(partial(build, spec, task, precision=precision), tokens, tokens[..., ::-1].copy(), (other, other))


def _own(make: Callable[[], nn.Module], precision: str) -> Callable[[Task], TorchModel]:
    return lambda task: TorchModel(make, task, precision)


def _grouped(image: tuple[int, int], outputs: int) -> nn.Module:
    pooled = nn.Sequential(nn.Conv2d(1, 6, 3), nn.GroupNorm(3, 6), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten())
    return nn.Sequential(pooled, nn.Linear(6 * ((image[0] - 2) // 2) * ((image[1] - 2) // 2), outputs))


class _Recurrent(nn.Module):
    def __init__(self, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(width, hidden, batch_first=True), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.gru(x[:, 0])[0][:, -1])  # (b, rows, hidden) -> (b, outputs)
        return found


class _Attending(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 6)
        self.attention, self.out = nn.MultiheadAttention(6, 3, batch_first=True), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x[:, 0])  # (b, rows, 6)
        found: Tensor = self.out(self.attention(up, up, up, need_weights=False)[0].mean(1))
        return found
