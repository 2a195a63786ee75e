"""Our arrays by torch's names and in torch's shapes: what `load_state_dict` of the same network takes.

The one idea: our names end in what the array is, so the name alone says what to do: W is torch's weight transposed, b
and beta are biases, gamma is batch norm's weight; running statistics are called the same.

    state = torch_state(model.layout.views(params) | model.buffers_layout.views(buffers))
    net = nn.Sequential(nn.Linear(784, 128), nn.Sigmoid(), ...)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})

`linear` loads into an `nn.Linear`. Imports no torch: what comes back are NumPy arrays, copies or the given ones.
"""

from collections.abc import Mapping

import numpy as np

from unisono.models.base import Array

NAMES = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias"}


def torch_state(state: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a model (parameters, buffers or both), translated. Arrays have their own shapes, no stack axis."""
    translated = {}
    for name, array in state.items():
        prefix, dot, kind = name.rpartition(".")
        transposed = np.ascontiguousarray(array.T) if kind == "W" else array
        translated[prefix + dot + NAMES.get(kind, kind)] = transposed
    return translated
