"""SharedOptimizer: the user's optimizer, whose `step` is done by all ranks together.

The one idea: for whoever looks at it (schedulers, logging) it is a torch optimizer, with the user's own parameter
groups, but its update is the second half of a round. Only learning rates may change on the way.

    model, optimizer = world.share(model, torch.optim.AdamW(model.parameters()))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

Limits: hooks are refused.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch

from unisono.errors import UserError
from unisono.loop.callbacks import NO_CALLBACKS
from unisono.loop.loaded_state import UNISONO, Entry, LoadedState, read_entries, torch_state
from unisono.loop.optimizers import AFTER_STEP, numbers_of

if TYPE_CHECKING:
    from unisono.loop.shared_model import ModelSharing


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
