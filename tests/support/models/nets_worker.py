"""Runs every check of tests/models/torch_nets: {check: "", or the traceback}."""

import traceback

import torch
from models.torch_nets import checks_every, checks_gpt, checks_images, checks_rows


def run_checks() -> dict[str, str]:
    torch.set_num_threads(1)
    outcome = {}
    for module in (checks_every, checks_rows, checks_images, checks_gpt):
        for name, check in vars(module).items():
            if not name.startswith("check_"):
                continue
            try:
                check()
                outcome[name] = ""
            except BaseException:  # what pytest raises where nothing was raised is not an Exception
                outcome[name] = traceback.format_exc()
    return outcome
