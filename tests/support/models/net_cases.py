"""What the checks of the networks share: some of each, with samples that fit."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from unisono.models.torch.nets import build

TRAINED = {
    "linear": ("linear", "", (12,), 3, "", 0.0),
    "mlp": ("mlp", "16", (12,), 3, "tanh", 0.0),
    "mlp, dropout": ("mlp", "64,32", (3, 4), 3, "gelu", 0.1),
    "bn-mlp": ("bn-mlp", "", (12,), 3, "", 0.0),
    "cnn, 8 x 8": ("cnn", "", (8, 8), 10, "", 0.0),
    "cnn, 28 x 28": ("cnn", "4,8", (28, 28), 10, "", 0.2),
    "cnn, 3 x 32 x 32": ("cnn", "4,8,8", (3, 32, 32), 10, "gelu", 0.0),
    "wideresnet, 28 x 28": ("wideresnet", "1", (28, 28), 10, "", 0.0),
    "wideresnet, 3 x 32 x 32": ("wideresnet", "1", (3, 32, 32), 10, "tanh", 0.2),
    "wideresnet, 8 x 8": ("wideresnet", "1", (8, 8), 10, "", 0.0),
    "gpt": ("gpt", "", (16,), 7, "", 0.0),
    "gpt, dropout": ("gpt", "layers=1,heads=4,width=32", (16,), 7, "relu", 0.1),
}


def samples(name: str, shape: tuple[int, ...], outputs: int, rows: int = 8) -> tuple[Tensor, Tensor]:
    """x and labels that fit a network."""
    torch.manual_seed(5)
    if name == "gpt":
        text = torch.randint(outputs, (rows, shape[0] + 1))
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()
    shape = (1, *shape) if len(shape) == 2 and name in ("cnn", "wideresnet") else shape
    return torch.randn(rows, *shape), torch.arange(rows) % outputs


def made(case: str) -> tuple[nn.Module, Tensor, Tensor]:
    name, args, shape, outputs, activation, dropout = TRAINED[case]
    torch.manual_seed(1)
    net = build(name, args, shape, outputs, activation, dropout)
    return net, *samples(name, shape, outputs)


def loss_of(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    z = net(x)
    return functional.cross_entropy(z.flatten(0, -2), y.flatten())


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())
