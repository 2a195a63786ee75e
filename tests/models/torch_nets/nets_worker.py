"""Runs every check of this folder.

python nets_worker.py          prints {check: "", or the traceback}
"""

import json
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks_every
import checks_gpt
import checks_images
import checks_rows
import torch


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


if __name__ == "__main__":
    print(json.dumps(run_checks()))
