"""The entry point of a rank that is a fresh interpreter: `python -m unisono.launch.spawn_entry SPEC`, started by
`local.py`.

SPEC is JSON: where to find the function, and the numbers of the inherited descriptors.
"""

import importlib
import json
import runpy
import sys
from collections.abc import Callable
from typing import Any

from unisono.arena.memory.segment import Segment
from unisono.errors import UserError
from unisono.launch.function_passing import unpack_function
from unisono.launch.local import fresh_import, serve
from unisono.supervise.children import die_with_parent
from unisono.world import World


def main() -> int:
    job = json.loads(sys.argv[1])
    die_with_parent(job["parent"])
    sys.path[:], sys.argv[:] = job["path"], job["argv"]

    def work(world: World) -> Any:
        # Looked up in here: what goes wrong on the way is told to the parent like any other failure.
        found = unpack_function(job["work"]["copy"]) if "copy" in job["work"] else find(**job["work"])
        return found(world)

    segment = Segment.attach(job["segment"])
    return serve(work, segment, job["rank"], job["ranks"], job["timeout_s"], job["sink"])


def find(module: str, file: str, name: str) -> Callable[[World], Any]:
    """The function of that name in a module, or in the script that started everything."""
    if module != "__main__":
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    # Not under the name __main__: what the script does when started must not happen again in every rank.
    fresh_import["running"] = True
    names = runpy.run_path(file, run_name="__unisono_rank__")
    fresh_import["running"] = False
    if name not in names:
        raise UserError(
            f"{name} is not defined when {file} is imported",
            hint="define it at the top level, not under `if __name__ == '__main__'`",
        )
    return names[name]  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
