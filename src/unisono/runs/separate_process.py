"""A run in a process of its own, for a process that must not fork because torch has started threads in it.

    path = run_in_separate_process(Recipe.from_options(model="cnn:8"), Trust(), quiet=False, watch=False)

The one idea: a fresh interpreter runs the same lifecycle: `python -m unisono.runs.separate_process SPEC`. SPEC is JSON:
the recipe, whose code is trusted, and the descriptor for the answer. The parent shows the lines of the run, and returns
the run directory or raises the error that comes back. Ctrl-C and the signals of batch systems are passed on: the run
leaves a snapshot, and `Halted` says how to resume it.

Limits: lines of the run come whole, so there is no progress bar.
"""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unisono.environment.os_environ import child_environment
from unisono.errors import RankFailed, UnisonoError, UserError
from unisono.launch.launcher_commands import python
from unisono.recipe import Recipe
from unisono.recipe.reading import from_values
from unisono.runs.early_end import Halted
from unisono.runs.lifecycle import run_lifecycle
from unisono.safe_print import print
from unisono.supervise.children import Subprocess
from unisono.supervise.config import SupervisorResult
from unisono.supervise.signals import exit_undisturbed, stop_requests
from unisono.trust import Trust
from unisono.user_code.tracebacks import own_traceback as traceback_of


def run_in_separate_process(recipe: Recipe, trust: Trust, *, quiet: bool, watch: bool) -> Path:
    """The run directory, when the run has ended. quiet, watch: as in `run_lifecycle`."""
    answer = os.memfd_create("unisono-answer", os.MFD_CLOEXEC)
    try:
        whose = asdict(trust) | {"given": sorted(trust.given), "named": dict(trust.named)}
        spec = {"recipe": recipe.options(), "trust": whose, "quiet": quiet, "watch": watch}
        order = json.dumps(spec | {"answer": answer, "path": sys.path})
        command = python("-m", "unisono.runs.separate_process", order)
        # A process that ignores Ctrl-C, as programs in the background do, has children that ignore it.
        request = signal.SIGTERM if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else signal.SIGINT
        given = child_environment(None)
        with Subprocess(command, given, subprocess.STDOUT, signal.SIGKILL, [answer]) as process:
            with stop_requests(lambda: process.send_signal(request)):
                for line in process.lines(silence_s=math.inf):
                    print(line, file=sys.stderr if quiet else None, flush=True)
            code = process.wait()
        size = os.fstat(answer).st_size
        said: dict[str, Any] = json.loads(os.pread(answer, size, 0)) if size else {}
    finally:
        os.close(answer)
    if "path" in said:
        return Path(said["path"])
    raise error_of(said, code)


def answer_of(error: BaseException) -> dict[str, Any]:
    """An error of the run as plain values."""
    if isinstance(error, Halted):
        ended = error.outcome
        facts = {"lost": ended.lost, "crashes": ended.crashes, "takeovers": ended.takeovers, "restarts": ended.restarts}
        return {"halted": [facts, error.snapshot, error.trouble]}
    if isinstance(error, RankFailed):
        return {"failed": [error.rank, error.report, error.kind, error.exit_code, error.traceback]}
    if isinstance(error, UnisonoError):
        return {"error": [error.message, error.exit_code, error.hint]}
    if isinstance(error, KeyboardInterrupt):
        return {"interrupted": True}
    return {"error": [traceback_of(error).rstrip(), UnisonoError.exit_code, ""]}


def error_of(answer: dict[str, Any], code: int) -> BaseException:
    """The error that `answer_of` wrote down. code: of the process, which may have ended without an answer."""
    if "halted" in answer:
        facts, snapshot, trouble = answer["halted"]
        return Halted(SupervisorResult(**facts), snapshot, trouble)
    if "failed" in answer:
        rank, report, kind, exit_code, traceback = answer["failed"]
        return RankFailed(rank, report, kind=kind, exit_code=exit_code, traceback=traceback)
    if "error" in answer:
        message, exit_code, hint = answer["error"]
        error = (UserError if exit_code == UserError.exit_code else UnisonoError)(message, hint=hint)
        error.exit_code = exit_code
        return error
    if "interrupted" in answer:
        return KeyboardInterrupt()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return UnisonoError(f"the process of the run {how}", hint="its newest snapshot, if it has one, can be resumed")


def main() -> None:
    """The entry point of the child."""
    spec = json.loads(sys.argv[1])
    sys.path[:] = spec["path"]
    try:
        recipe = from_values(spec["recipe"], "the recipe")
        lifecycle = run_lifecycle(
            recipe, trust=Trust(**spec["trust"]), watch=spec["watch"], quiet=spec["quiet"], last=True
        )
        answer = {"path": str(lifecycle.path)}
    except BaseException as error:
        answer = answer_of(error)
    exit_undisturbed()
    os.write(spec["answer"], json.dumps(answer).encode())


if __name__ == "__main__":
    main()
