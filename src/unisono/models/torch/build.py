"""From what stands after --model to a model of the torch engine: our networks by name, or the user's own.

    model = build("cnn:16,32", Task((28, 28), outputs=10), precision="bf16")
    model = build("mine.py:net", Task((28, 28), outputs=10))

The one idea: both are factories. One of the user's may take `shape` (one sample as the module will see it: (1, 28, 28))
and `outputs`, by these names; what is wrong with it is said with the line in the file.

Limits: the file is run in every process that builds the model. Whoever hands on what it held (`source`) runs it as it
was then; modules that it imports from beside it are those that a forked process has inherited.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from unisono.errors import UserError
from unisono.models.base import Shape
from unisono.models.torch import nets
from unisono.models.torch.model import TorchModel
from unisono.models.torch.repeatable_build import check_repeats
from unisono.models.torch.task import Task
from unisono.user_code.function import UserFunction


def build(
    spec: str,
    task: Task,
    activation: str = "",
    dropout: float = 0.0,
    precision: str = "fp32",
    threads: int = 1,
    *,
    sync_batchnorm: bool = False,
    source: bytes | None = None,
) -> TorchModel:
    """The model that `spec` names; source: of the user's own file, if it was read before. Mistakes are `UserError`s."""
    options = precision, threads, sync_batchnorm
    # Before anything is computed: a process with threads of torch's cannot fork ranks.
    torch.set_num_threads(1)
    if ".py:" in spec:
        if activation or dropout:
            raise UserError(
                f"--activation or --dropout with --model {spec}: the file decides", hint="write them into the module"
            )
        own = UserFunction(spec, source)
        hint = f"correct it: a sample has the shape {task.input_shape}, a batch one dimension more"
        # Errors of the function itself are told by `own`: what is left is of the module that it returned.
        with own.explained(hint, _offered(task), "calling what the function returns with such a batch"):
            return TorchModel(partial(own, **_offered(task)), task, *options)
    return TorchModel(_by_name(spec, task, activation, dropout), task, *options)


def try_again(spec: str, task: Task, source: bytes | None = None) -> list[str]:
    """After `build`: whether a function of the user's builds the same again; notes for the user."""
    if ".py:" not in spec:
        return []
    own = UserFunction(spec, source)
    with own.explained(offered=_offered(task)):
        return check_repeats(partial(own, **_offered(task)), spec)


def _offered(task: Task) -> dict[str, Shape | int]:
    return {"shape": task.input_shape, "outputs": task.outputs}


def _by_name(spec: str, task: Task, activation: str, dropout: float) -> Callable[[], nn.Module]:
    name, _, args = spec.partition(":")
    if name in nets.NETWORKS and (name in nets.FOR_TEXT) != task.tokens:
        kind = "text" if task.tokens else "no text"
        others = [other for other in nets.NETWORKS if (other in nets.FOR_TEXT) == task.tokens]
        more = "" if task.tokens else "; or --data synthetic-text, or a .txt file"
        fitting = f"use {', '.join(others)}{more}"
        raise UserError(f"model {spec!r} does not fit the data, which are {kind}", hint=fitting)
    return partial(nets.build, name, args, task.shape, task.outputs, activation, dropout)
