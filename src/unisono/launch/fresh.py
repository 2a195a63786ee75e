"""The entry point of a rank that is a fresh interpreter: `python -m unisono.launch.fresh SPEC`, started by `local.py`.

SPEC is JSON: where to find the function, and the numbers of the inherited descriptors.
"""

import importlib
import json
import runpy
import sys

from unisono.arena.segment import Segment
from unisono.launch.children import die_with_parent
from unisono.launch.local import serve


def main() -> int:
    job = json.loads(sys.argv[1])
    die_with_parent(job["parent"])
    sys.path[:] = job["path"]
    where = job["work"]
    if where["module"] == "__main__":
        # Not under the name __main__: what the script does when started must not happen again in every rank.
        work = runpy.run_path(where["file"], run_name="__unisono_rank__")[where["name"]]
    else:
        work = getattr(importlib.import_module(where["module"]), where["name"])
    segment = Segment.attach(job["segment"])
    return serve(work, segment, job["rank"], job["ranks"], job["timeout_s"], job["sink"])


if __name__ == "__main__":
    sys.exit(main())
