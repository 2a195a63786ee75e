"""Run by test_torch.py in a process of its own: the same calls, computed by torch's autograd.

python torch_reference.py cases.npz answers.npz

cases.npz holds, for each case c: c/layers (JSON: what nn.Sequential is made of), c/state/<name>, c/x, c/y, c/scale.
"""

import json
import sys

import numpy as np
import torch
from torch import nn

MODULES = {
    "linear": nn.Linear,
    "batch norm": nn.BatchNorm1d,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
}


def answer(case: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients, buffers and sums, shard by shard."""
    modules = [MODULES[kind](*sizes) for kind, *sizes in json.loads(str(case["layers"]))]
    net = nn.Sequential(*modules) if len(modules) > 1 else modules[0]
    found: dict[str, list[np.ndarray]] = {}
    for x, y in zip(torch.from_numpy(case["x"]), torch.from_numpy(case["y"]), strict=True):
        net.to(x.dtype)
        net.load_state_dict({name[6:]: torch.from_numpy(case[name]) for name in case if name.startswith("state/")})
        net.zero_grad()
        classifies = not y.is_floating_point()
        function = nn.functional.cross_entropy if classifies else nn.functional.mse_loss
        net.eval()
        tested = net(x)
        net.train()
        z = net(x)
        (function(z, y) * len(x) * float(case["scale"])).backward()
        row = {
            "loss_sum": function(z, y).detach() * len(x),
            "tested_loss_sum": function(tested, y).detach() * len(x),
            "tested_correct": (tested.argmax(1) == y).sum() if classifies else torch.zeros(()),
        }
        row |= {f"grad/{name}": value.grad for name, value in net.named_parameters()}
        row |= {f"buffer/{name}": value for name, value in net.named_buffers() if value.is_floating_point()}
        for name, value in row.items():
            found.setdefault(name, []).append(value.numpy().copy())
    return {name: np.stack(rows) for name, rows in found.items()}


def main() -> None:
    torch.set_num_threads(1)
    cases = np.load(sys.argv[1], allow_pickle=False)
    answers = {}
    for name in sorted({key.split("/")[0] for key in cases.files}):
        case = {key.partition("/")[2]: cases[key] for key in cases.files if key.startswith(name + "/")}
        answers |= {f"{name}/{key}": value for key, value in answer(case).items()}
    np.savez(sys.argv[2], **answers)


if __name__ == "__main__":
    main()
