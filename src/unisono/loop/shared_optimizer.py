"""SharedOptimizer: the user's torch optimizer, whose `step` all ranks do together, each on its chunk of the vector.

The one idea: to its users (schedulers, logging) it is a torch optimizer, with the user's own parameter groups, but its
update is the second half of a round. SGD, Adam and AdamW are element-wise, so each rank may update its own chunk: their
numbers are read from the user's optimizer, group by group (`groups_of`). Only learning rates may change afterwards;
they are read at every step, because schedulers change them.

    model, optimizer = world.share(model, torch.optim.AdamW(model.parameters()))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

Limits: hooks are refused; optimizers and options that are not in the table are refused by name, never approximated.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from unisono.errors import UserError
from unisono.loop.callbacks import NO_CALLBACKS
from unisono.loop.torch_optimizer_state import UNISONO, Entry, LoadedState, read_entries, torch_state
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.update import Group

if TYPE_CHECKING:
    from unisono.loop.shared_model import ModelSharing

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


@final
class SharedOptimizer(torch.optim.Optimizer):
    """Made from the user's, whose `param_groups` it has. `step` once a batch."""

    def __init__(self, inner: torch.optim.Optimizer, sharing: "ModelSharing") -> None:
        # Not Optimizer.__init__: everything it would make is the user's optimizer's.
        self.inner, self._sharing = inner, sharing
        self._pending: Callable[[list[float]], None] | None = None
        self.param_groups, self.defaults = inner.param_groups, inner.defaults
        self.state = inner.state
        self._numbers = [numbers_of(group) for group in inner.param_groups]

    def expect(self, finish: Callable[[list[float]], None]) -> None:
        """A batch's gradients exist: `step` is to finish it."""
        self._pending = finish

    def check_stepped(self) -> None:
        """A `UserError` if a batch was gone through and not stepped."""
        if self._pending is not None:
            raise UserError(
                "optimizer.step() was not called for the last batch",
                hint="call it once a batch; to gather more gradients before an update, use a larger batch_size",
            )

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Sum, update, commit."""
        if closure is not None:
            raise UserError("optimizer.step was given a closure", hint="compute losses in the loop over the batch")
        if self._pending is None:
            raise UserError(
                "optimizer.step() without gradients: no batch has been gone through since the last one",
                hint="go through the whole batch (for x, y in batch: world.backward(loss)), then step, once",
            )
        self._check_numbers()
        finish, self._pending = self._pending, None
        finish([float(group["lr"]) for group in self.param_groups])
        # A scheduler that was made before `share` looks there whether a step was made.
        self.inner._opt_called = True  # type: ignore[attr-defined]

    def _check_numbers(self) -> None:
        if len(self.param_groups) != len(self._numbers):
            self.add_param_group({})
        for place, (group, settled) in enumerate(zip(self.param_groups, self._numbers, strict=True)):
            for name, value in numbers_of(group).items():
                if value != settled[name]:
                    raise UserError(
                        f"{name} of parameter group {place} was changed from {settled[name]} to {value}: after "
                        "world.share only learning rates may change",
                        hint="OneCycleLR and CyclicLR leave it alone with cycle_momentum=False",
                    )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise UserError(
            "a parameter group was added after world.share",
            hint="give the optimizer all groups first; a learning rate of 0 keeps one as it is for a while",
        )

    def register_step_pre_hook(self, hook: Any) -> Any:
        raise UserError("optimizer.register_step_pre_hook after world.share", hint=AFTER_STEP)

    def register_step_post_hook(self, hook: Any) -> Any:
        raise UserError("optimizer.register_step_post_hook after world.share", hint=AFTER_STEP)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing to do: every batch writes all gradients anew."""

    def state_dict(self) -> dict[str, Any]:
        """As torch's own, which can load it: a dict for each parameter, by number, and the groups."""
        sharing, length = self._sharing, self._sharing.vectors.layout.length
        steps = sharing.steps_before + sharing.steps
        vectors = {
            name: vector[:length] for name, vector in zip(sharing.state_names, sharing.shared.state, strict=True)
        }
        given = LoadedState(vectors, steps, sharing.shared.missed[steps % 2], sharing.epochs)
        numbers = self._numbered()
        groups = [
            {**group, "params": [numbers[id(parameter)] for parameter in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": torch_state(given, sharing.vectors.layout, self._entries()), "param_groups": groups}

    def _numbered(self) -> dict[int, int]:
        """id of a parameter -> its number, as torch counts them."""
        every = dict.fromkeys(id(parameter) for group in self.param_groups for parameter in group["params"])
        return {each: number for number, each in enumerate(every)}

    def _entries(self) -> dict[int, Entry]:
        """Those that are trained, by number."""
        numbers = self._numbered()
        names = {id(parameter): name for name, parameter in self._sharing.vectors.trained.items()}
        return {
            numbers[id(parameter)]: Entry(names[id(parameter)], tuple(parameter.shape), group)
            for group in self.param_groups
            for parameter in group["params"]
            if id(parameter) in names
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What this or torch's own optimizer saved, before the first batch, on all ranks alike. Batches go on with the
        epoch after the last that was begun."""
        sharing, saved, groups = self._sharing, state_dict.get("state", {}), state_dict.get("param_groups", ())
        sizes = [[len(each.get("params", ())) for each in of] for of in (groups, self.param_groups)]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"the state has groups of {sizes[0]} parameters, this optimizer of {sizes[1]}",
                hint="load what state_dict() of an optimizer of the same model gave",
            )
        if sharing.steps or sharing.callbacks is not NO_CALLBACKS:
            after = "the first step" if sharing.steps else "unisono.keep, which may have loaded a later state"
            raise UserError(f"load_state_dict after {after}", hint="load right after world.share")
        for group, values in zip(self.param_groups, groups, strict=True):
            group.update({name: value for name, value in values.items() if name != "params"})
        layout, entries = sharing.vectors.layout, self._entries()
        found = [(entry, saved.get(number) or {}) for number, entry in entries.items()]
        sharing.take_state(read_entries(found, saved.get(UNISONO) or {}, layout))
