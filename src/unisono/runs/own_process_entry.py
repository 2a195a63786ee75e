"""The entry point of a run in a process of its own: `python -m unisono.runs.own_process_entry SPEC`.

SPEC is JSON, made by `own_process.py`: the recipe, whose code is trusted, and the descriptor for the answer.
"""

import json
import os
import sys

from unisono.recipe.reading import from_values
from unisono.runs.course import run_course
from unisono.runs.own_process import answer_of
from unisono.supervise.signals import exit_undisturbed
from unisono.trust import Trust


def main() -> None:
    spec = json.loads(sys.argv[1])
    sys.path[:] = spec["path"]
    try:
        recipe = from_values(spec["recipe"], "the recipe")
        course = run_course(recipe, trust=Trust(**spec["trust"]), watch=spec["watch"], quiet=spec["quiet"], last=True)
        answer = {"path": str(course.path)}
    except BaseException as error:
        answer = answer_of(error)
    exit_undisturbed()
    os.write(spec["answer"], json.dumps(answer).encode())


if __name__ == "__main__":
    main()
