"""A cell's run: `unisono train` in a process of its own, and what it left.

    record = run_cell(cell, Path("studies/mine/cells/a.toml"), Path("studies/mine/runs/a-0"), timeout_s=600)
    outcome_of(Path("studies/mine/runs/a-0"))["accuracies"]

The one idea: a run of a study is the run that the user would start by hand: the same command, the same run directory.
It starts with clean memory, can be killed, and whatever happens to it is a record with a reason, never an exception.
All that tables need of a run is in its record (its summary, its score after every epoch, how many cores it kept busy),
so a study can be shown when its runs are gone. Files that are missing or damaged add nothing.

Limits: `timeout_s` is looked at when the run prints a line, and when it has printed nothing for so long: a run that
prints can take up to twice as long before it is ended. Utilisation is sampled every two seconds, on the machine that
wrote the run directory.
"""

import csv
import io
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unisono.energy.resource_usage import BackgroundLoad
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.errors import CommTimeout, UserError
from unisono.files import make_folder, open_file, read_file
from unisono.launch.launcher_commands import mpirun, python
from unisono.parsing import MOST_JSON_BYTES, parse_json
from unisono.study.cells import Cell
from unisono.study.study_directory import writing
from unisono.supervise.children import Subprocess
from unisono.trust import code_of
from unisono.user_code.tracebacks import LEFT_OUT, ending

FINISHED, FAILED = "finished", "failed"
SCORED_PARTS = ("test", "validation", "train")
"""Whose accuracy it is: the first of these that the run measured."""


def run_cell(
    cell: Cell, recipe: Path, run: Path, timeout_s: float, on_line: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Runs the cell's recipe, which is written to `recipe`, into `run`; what became of it.

    status (finished or failed), reason (one line, of a failure), error (all that was said), exit_code, elapsed_s (from
    the start of the process to its end), others_cores (of our cores, how many others kept busy; None: not known),
    summary (of the run directory; empty if it failed); of a finished one also what `outcome_of` says.
    """
    with writing(recipe):
        make_folder(recipe.parent, within=recipe.parent.parent)
        cell.recipe.save(recipe, within=recipe.parent.parent)
    begun, others = time.perf_counter(), BackgroundLoad()
    # The command that carries the study out has asked for it.
    trust = ["--trust"] if code_of(cell.recipe) else []
    code, said = _run(cell, [str(recipe), "--out", str(run), *trust], timeout_s, on_line)
    elapsed_s = time.perf_counter() - begun
    return {"elapsed_s": elapsed_s, "others_cores": others.cores()} | outcome(run, code, said)


def outcome(run: Path, code: int | None, said: str) -> dict[str, Any]:
    """What became of a run that left this exit code, and said this on standard error. None: it was ended."""
    summary = read_summary(run) if code == 0 else {}
    if code == 0 and summary.get("status") == FINISHED:
        done = {"exit_code": code, "status": FINISHED, "reason": "", "error": "", "summary": summary}
        return done | outcome_of(run)
    if code == 0:
        said = "it ended in good order and left no summary.json that says so"
    reason = reason_of(said, code)
    return {"exit_code": code, "status": FAILED, "reason": reason, "error": said[-4000:], "summary": {}}


def _run(cell: Cell, arguments: list[str], timeout_s: float, on_line: Callable[[str], None]) -> tuple[int | None, str]:
    """(exit code, what was said on standard error); None: it was ended because it took too long."""
    command = python("-m", "unisono", "train", *arguments)
    environment, dies_by = child_environment(threads=None), signal.SIGKILL
    if cell.recipe.strategy.transport == "mpi":
        try:
            command, environment, dies_by = mpirun(cell.recipe.ranks.count, command), mpi_environment(), signal.SIGTERM
        except UserError as error:
            return error.exit_code, str(error)
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise:
        with Subprocess(command, environment, stderr=noise.fileno(), with_signal=dies_by) as process:
            try:
                for line in process.lines(silence_s=timeout_s):
                    on_line(line)
                    if time.monotonic() > deadline:
                        raise CommTimeout("it went on for too long")
                code = process.wait()
            except CommTimeout as error:
                if time.monotonic() > deadline:
                    return None, f"it took longer than {timeout_s:g} s (--timeout-s) and was ended"
                return None, str(error)
        noise.seek(0)
        return code, noise.read()


def read_summary(run: Path) -> dict[str, Any]:
    """Empty if there is none."""
    try:
        found = parse_json(read_file(run / "summary.json", MOST_JSON_BYTES, follow_links=False))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def reason_of(said: str, code: int | None) -> str:
    """The line that tells why: an error of ours, of a traceback its end; else the last one; else how it ended."""
    lines = [line.rstrip() for line in said.splitlines() if line.strip() and not line.startswith(LEFT_OUT)]
    ours = [number for number, line in enumerate(lines) if line.startswith("unisono: ")]
    if ours:
        told = "\n".join(lines[ours[-1] :]).removeprefix("unisono: ")
        return ending(told).partition("\n")[0]
    if lines:
        return lines[-1].strip()
    if code is not None and code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def outcome_of(run: Path) -> dict[str, Any]:
    """accuracies (one an epoch) and scored (of which part), if there are any; node_cores: in use by the
    ranks, on average."""
    found: dict[str, Any] = {}
    epochs = _epochs(run / "metrics.jsonl")
    for part in SCORED_PARTS:
        values = [epoch.get(f"{part}_accuracy") for epoch in epochs]
        if values and all(isinstance(value, float | int) for value in values):
            found |= {"accuracies": values, "scored": part}
            break
    if busy := _node_cores(run / "utilisation.csv"):
        found["node_cores"] = sum(busy) / len(busy)
    return found


def _epochs(path: Path) -> list[dict[str, Any]]:
    try:
        found = [parse_json(line) for line in read_file(path, MOST_JSON_BYTES, follow_links=False).splitlines()]
    except (OSError, ValueError):
        return []
    return found if all(isinstance(epoch, dict) for epoch in found) else []


def _node_cores(path: Path) -> list[float]:
    """What the ranks used in each sample."""
    try:
        with io.TextIOWrapper(open_file(path, follow_links=False), "utf-8", newline="") as file:
            return [float(line["utilisation"]) for line in csv.DictReader(file) if line.get("what") == "all ranks"]
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return []
