"""From the value of --model to a model of the torch engine: our networks by name, or the user's own.

    model = build("cnn:16,32", Task((28, 28), outputs=10), precision="bf16")
    model = build("mine.py:net", Task((28, 28), outputs=10))

The one idea: both are factories. A function of the user may take `shape` (one sample as the module will see it:
(1, 28, 28)) and `outputs`, by these names; an error in it is reported with the line in the file.

`try_again` calls a function of the user twice with every generator seeded alike, and compares bits
(`check_repeats`): the starting values must be the recipe's, by its seed. What differs was drawn elsewhere (from
the clock, from a generator without a seed), and would differ between ranks, between runs and after a restart.

Limits: the file is run in every process that builds the model. A caller that passes its content on (`source`) runs it
as it was then; modules that it imports from beside it are those that a forked process has inherited. A seed that is
equal in both calls (the second, the process's number) is not seen to differ; a function that seeds torch's generator
itself is seen, and said. Replicas compare what they start from (`strategies/messages/base.py`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.base import Shape
from unisono.models.torch import nets
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel
from unisono.models.torch.random_state import seeded
from unisono.user_code.function import UserFunction

_SEED = 0x756E69736F6E6F
"""A seed that no user would choose."""


def check_repeats(make: Callable[[], nn.Module], what: str) -> list[str]:
    """Notes for the user; a `UserError` that names the first tensor that is not the same again."""
    with seeded(_SEED):
        first = make()
        own_seed = torch.initial_seed() != _SEED
    with seeded(_SEED):
        second = make()
    known = {id(tensor) for _, tensor in _learnt(first)}
    for name, tensor in _learnt(second):
        if id(tensor) in known:
            raise UserError(
                f"{what} was called twice, and {name} of the second module is that of the first: networks that are to "
                "be apart would change each other's",
                hint="build it inside the function, or return copy.deepcopy(...) of what was built before",
            )
    for one, other in zip_longest(_tensors(first), _tensors(second), fillvalue=("nothing", b"")):
        if one != other:
            which = f"{one[0]} is not the same again" if one[0] == other[0] else f"{one[0]}, then {other[0]}"
            raise UserError(
                f"{what} was called twice with the same seed: {which}; ranks and runs would start from other weights",
                hint="draw from torch, NumPy (np.random) or random as they are: they are seeded from --seed; leave out "
                "torch.seed(), manual_seed(time...) and generators without a seed",
            )
    if own_seed:
        return [
            f"Note: {what} seeds torch's generator itself: --seed does not decide the starting weights, and runs start "
            "alike only if that seed is always the same."
        ]
    return []


def _learnt(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What training changes, or may."""
    yield from ((f"parameter {name!r}", tensor) for name, tensor in module.named_parameters() if tensor.requires_grad)
    yield from ((f"buffer {name!r}", tensor) for name, tensor in module.named_buffers())


def _tensors(module: nn.Module) -> Iterator[tuple[str, bytes]]:
    """Name and bits of each."""
    for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in tensors:
            yield f"{kind} {name!r} {tuple(tensor.shape)}", tensor.detach().numpy().tobytes()


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
    """The model that `spec` names; source: the user's own file, if it was read before. Mistakes are `UserError`s."""
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
        # `own` reports errors of the function itself: the others come from the module that it returned.
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
