"""Networks of the torch engine by name, and the one function that builds them.

The one idea: a table of names, each leading to a function in a file of its own; torch is imported when a network is
built, not when the names are read.

    net = build("cnn", "16,32", shape=(28, 28), outputs=10, activation="", dropout=0.0)      # --model cnn:16,32

| --model | network | its file |
| --- | --- | --- |
| `linear`, `mlp:128,64`, `bn-mlp:32` | those of the NumPy engine, parameter by parameter | mlp.py |
| `cnn:16,32` | convolution, batch norm, activation, pooling for each number of channels, then linear |
convolutional.py |
| `wideresnet:10` | a wide residual network; the number is how much wider than the plain one | convolutional.py |
| `gpt:layers=2,heads=2,width=64` | a decoder-only transformer over characters, for text | gpt.py |

Starting values are drawn from torch's default generator while a network is built, and nowhere else: to start anew, seed
that generator and build again. Building starts no torch thread, so ranks may be forked afterwards.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from unisono.errors import UserError, unknown_name
from unisono.models.torch.nets.network_request import NetworkRequest
from unisono.optional_packages import how_to_install

if TYPE_CHECKING:
    from torch import nn

NETWORKS = {
    "linear": "mlp:linear",
    "mlp": "mlp:mlp",
    "bn-mlp": "mlp:bn_mlp",
    "cnn": "convolutional:cnn",
    "wideresnet": "convolutional:wideresnet",
    "gpt": "gpt:gpt",
}
"""name -> "file:function"; the function makes a module out of a `NetworkRequest`."""

FOR_TEXT = ("gpt",)
"""Those that read whole numbers (b, T) and answer at every place; the others read float32 (b, *shape)."""


def build(
    name: str, args: str, shape: tuple[int, ...], outputs: int, activation: str = "", dropout: float = 0.0
) -> "nn.Module":
    """The network that stands before the colon of --model, with the `args` that stand after it.

    shape: one sample, (28, 28) or channels first (3, 32, 32), for text (T,). No `activation`: the network's own.
    Mistakes are `UserError`s.
    """
    if name not in NETWORKS:
        raise unknown_name("model", name, NETWORKS)
    request = NetworkRequest(name, args, shape, outputs, activation, dropout)
    if find_spec("torch") is None:
        raise UserError(
            f"model {request.spec!r} needs the package torch, which is not installed", hint=how_to_install("torch")
        )
    file, _, function = NETWORKS[name].partition(":")
    net: nn.Module = getattr(import_module(f"{__name__}.{file}"), function)(request)
    return net
