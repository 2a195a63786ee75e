"""Runs every check of a file of tests/loop: ranks are forked, which threads of torch's would forbid.

A function check_NAME asserts; a function refuse_NAME(world) must end, on each of 2 ranks, in a UserError with a hint,
whose message matches its docstring.
"""

import importlib
import re
import traceback
from collections.abc import Callable

import torch

import unisono.loop.batches  # noqa: F401  # ranks are forked: what is imported here they need not import
from support.loop.loop_cases import on
from unisono.errors import UserError
from unisono.world import World

torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks


def refused(work: Callable[[World], object]) -> None:
    def caught(world: World) -> str:
        try:
            work(world)
        except UserError as error:
            return str(error)
        return "nothing was refused"

    for message in on(2, caught):
        assert work.__doc__, f"{work.__name__} does not say which message it expects"
        assert re.search(work.__doc__, message), message
        assert "\nHINT: " in message, message


def run_checks(file: str) -> dict[str, str]:
    """FILE NAME of each check -> "", or the traceback."""
    torch.set_num_threads(1)
    outcome = {}
    module = importlib.import_module(f"loop.{file}")
    for name, check in list(vars(module).items()):
        if not name.startswith(("check_", "refuse_")) or check.__module__ != module.__name__:
            continue
        try:
            check() if name.startswith("check_") else refused(check)
            outcome[f"{file} {name}"] = ""
        except BaseException:  # what pytest raises where nothing was raised is not an Exception
            outcome[f"{file} {name}"] = traceback.format_exc()
    return outcome
