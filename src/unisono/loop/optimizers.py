"""What a torch optimizer asks for, done by ours on chunks of the flat vector.

The one idea: SGD, Adam and AdamW are element-wise, so each rank may update its own chunk; their numbers are read from
the user's optimizer, group by group, and its learning rates anew at every step (schedulers change them).

    groups = groups_of(optimizer, parameters, clip=1.0)

Limits: optimizers and options that are not in the table are refused by name, never approximated.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from unisono.errors import UserError
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.update import Group

_REFUSED: Mapping[str, Any] = {
    "amsgrad": False, "maximize": False, "differentiable": False, "dampening": 0, "capturable": False,
}  # fmt: skip
"""Options with the one value that is known here."""


AFTER_STEP = "put the code after optimizer.step(): it runs once a step, on every rank"
_NUMBERS = ("momentum", "nesterov", "betas", "eps", "weight_decay")


def numbers_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a group's update besides its learning rate."""
    return {name: group[name] for name in _NUMBERS if name in group}


def groups_of(optimizer: torch.optim.Optimizer, names: Mapping[int, int], clip: float) -> list[Group]:
    """A group for each of the optimizer's; `names`: id of a parameter -> its place in the layout."""
    options = [_options(optimizer, group, clip) for group in optimizer.param_groups]
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise UserError(f"{type(optimizer).__name__} has step hooks, which would not be called", hint=AFTER_STEP)
    kinds = {option.name for option in options}
    if len(kinds) > 1:
        told = ", ".join(sorted(kinds))
        raise UserError(
            f"the groups of one optimizer need {told}", hint="give all groups the same momentum and nesterov"
        )
    groups = []
    for option, group in zip(options, optimizer.param_groups, strict=True):
        strangers = [parameter for parameter in group["params"] if id(parameter) not in names]
        trained = [parameter for parameter in strangers if parameter.requires_grad]
        if trained:
            raise UserError(
                f"the optimizer has {len(trained)} parameters that are not the model's",
                hint="make it from model.parameters()",
            )
        own = frozenset(names[id(parameter)] for parameter in group["params"] if id(parameter) in names)
        groups.append(Group(option, own))
    left = set(names.values()) - {place for group in groups for place in group.parameters or ()}
    if not left and len(groups) == 1:
        return [Group(options[0])]
    return groups


def _options(optimizer: torch.optim.Optimizer, group: Mapping[str, Any], clip: float) -> OptimizerOptions:
    kind = type(optimizer)
    for name, value in _REFUSED.items():
        if group.get(name, value) != value:
            raise UserError(f"{kind.__name__}({name}={group[name]!r}) is not known here", hint=f"leave {name} out")
    lr, decay = float(group["lr"]), float(group.get("weight_decay", 0.0))
    known = partial(OptimizerOptions, lr=lr or 1e-30, weight_decay=decay, clip=clip or None)  # lr 0: warm-up begins
    if kind is torch.optim.SGD:
        momentum = float(group["momentum"])
        name = "nesterov" if group["nesterov"] else "momentum" if momentum else "sgd"
        return known(name, momentum=momentum or None)
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        betas = (float(group["betas"][0]), float(group["betas"][1]))
        return known("adamw" if decoupled else "adam", betas=betas, eps=float(group["eps"]))
    raise UserError(
        f"{kind.__module__}.{kind.__name__} is not known to update each element by itself",
        hint="use torch.optim.SGD, Adam or AdamW",
    )
