"""A recipe run in several ways (ranks, machines, a death, a resume), and whether all found the same.

The one idea: each way is the real command's code in a process of its own, forked from one that has imported torch; what
is to happen to a rank is patched into that process, and every rank that it forks has it. What a run found is the hash
of its weights and the numbers of its epochs, to the last digit.

    result = carry_out(draw_recipe(7, "torch", 12, folder), folder); result.verdict, result.text

Two machines are two such processes, each with an arena and a supervisor, that talk over gloo on the loopback address.
Limits: Linux. A rank is not killed while it joins (`chaos.py` does that). A way that takes longer than LIMIT_S is a
finding, and killed.
"""

import json
import os
import random
import re
import secrets
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

from recipe_draws import BEFORE, HALT, STEP, UPDATE, Draw, Strike, Way
from torment import Run

import unisono.runs.recorder
import unisono.training.epoch_end
from unisono.arena.membership.member import Member
from unisono.errors import RESUME_ME, UnisonoError, UserError
from unisono.launch.machine_options import MachineOptions
from unisono.optim.base import Optimizer
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.runs.supervised_training import SupervisedRun
from unisono.storage.resume import recipe_of
from unisono.training.trainer import Learner

LIMIT_S = 120.0
SHOWN = 2000
"""Characters of a log."""
EQUAL, DIFFERS, FAILED, STUCK, REFUSED, DIVERGED = "equal", "DIFFERS", "FAILED", "STUCK", "refused", "diverged"
FINDINGS = (DIFFERS, FAILED, STUCK)
RANKS, MACHINES, DEATH, RESUME, MISSED = "ranks", "two machines", "death", "resume", "missed"
PORTS = range(10_000, 20_000)
"""Below those that the kernel gives away, and those of launchers."""
_NUMBERS = ("epoch", "lr", "train_", "validation_", "test_")


@final
class Ended(UnisonoError):
    """A run that came to no result: the verdict, and why."""

    def __init__(self, verdict: str, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict


@final
@dataclass(frozen=True)
class Found:
    """What a run came to."""

    sha256: str
    epochs: tuple[str, ...]

    @classmethod
    def read(cls, run: Path) -> "Found":
        summary = json.loads((run / "summary.json").read_text())
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return cls(summary["weights_sha256"], tuple(json.dumps(numbers(record)) for record in records))


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """What training decides in an epoch's record; the rest is times and bytes."""
    return {name: value for name, value in record.items() if name.startswith(_NUMBERS) and not name.endswith("_s")}


@final
@dataclass
class Result:
    """What became of a draw."""

    name: str
    verdict: str
    text: str = ""
    """What to say of it."""
    kinds: Counter[str] = field(default_factory=Counter)
    """The ways of each kind that happened; a death that did not strike is none."""
    s: float = 0.0


def carry_out(draw: Draw, folder: Path) -> Result:
    """All ways of a draw, the first one again if there was a difference: it may not even repeat itself."""
    begun, result = time.monotonic(), Result(draw.name, EQUAL)
    found: list[tuple[Way, Found]] = []
    for number, way in enumerate(draw.ways):
        try:
            found.append((way, _run(draw.recipe, way, folder / f"way-{number}", result.kinds)))
        except Ended as ended:
            alone = found and ended.verdict in (REFUSED, DIVERGED)  # what one way takes, all must
            result.verdict = FAILED if alone else ended.verdict
            result.text = ended.args[0] if ended.verdict == REFUSED and not found else f"{way}: {ended}"
            break
    if len({one for _, one in found}) > 1:
        with suppress(Ended):
            found.append((draw.ways[0], _run(draw.recipe, draw.ways[0], folder / "again", Counter())))
        result.verdict, result.text = DIFFERS, "\n".join(filter(None, (difference(found), result.text)))
    result.s = time.monotonic() - begun
    return result


def difference(found: list[tuple[Way, Found]]) -> str:
    """A line for each way."""
    first, lines = found[0][1], []
    for way, one in found:
        told = "" if one.sha256 == first.sha256 else "  other weights"
        told += "" if one.epochs == first.epochs else "  other records"
        lines.append(f"  {one.sha256[:12]}  {way}{told}")
    return "\n".join(lines)


def _run(recipe: Recipe, way: Way, folder: Path, kinds: Counter[str]) -> Found:
    """One way, to its end. `Ended` if it comes to none."""
    folder.mkdir()
    run, marker = folder / "run", folder / "struck"
    code = _start(partial(_begin, recipe, run), way.ranks, folder, way.strike)
    if way.then and marker.exists() and code == RESUME_ME:
        code = _start(partial(_go_on, run), way.then, folder)
        kinds[RESUME] += code == 0
    if code:
        raise _ended(code, folder)
    kinds[RANKS] += way.strike is None and len(way.ranks) == 1
    kinds[MACHINES] += max(len(way.ranks), len(way.then)) > 1
    kinds[DEATH] += not way.then and marker.exists()
    kinds[MISSED] += way.strike is not None and not marker.exists()  # stopped early
    return Found.read(run)


def _begin(recipe: Recipe, run: Path, node: int) -> Recipe:
    return recipe.with_options(out="" if node else str(run))  # the first machine writes it


def _go_on(run: Path, node: int) -> Recipe:
    return recipe_of(str(run), {})


def _start(
    recipe_on: Callable[[int], Recipe], ranks: tuple[int, ...], folder: Path, strike: Strike | None = None
) -> int:
    """A process for each machine; the first exit code that is not 0."""
    port, deadline = _free_port() if len(ranks) > 1 else 0, time.monotonic() + LIMIT_S
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32))

    def live(node: int) -> None:
        _lighten()
        if strike is not None and strike.machine == node:
            install(strike, folder / "struck")
        recipe = recipe_on(node).with_options(ranks=ranks[node])
        if not port:
            run_recipe(recipe)
            return
        where = MachineOptions(
            num_nodes=len(ranks), node_id=node, main_address="127.0.0.1", main_port=port, secret_file=str(secret)
        )
        run_recipe(recipe, where)

    with ExitStack() as stack:
        runs = [stack.enter_context(Run(partial(live, node), folder / f"log-{node}.txt")) for node in range(len(ranks))]
        for run in runs:
            if run.running(max(0.0, deadline - time.monotonic())):
                raise Ended(STUCK, f"not ended after {LIMIT_S:g} s:\n{_log(folder)}")
        return next((run.code() for run in runs if run.code()), 0)


def _ended(code: int, folder: Path) -> Ended:
    """Why, by the exit code."""
    log = _log(folder)
    if code == UserError.exit_code:
        return Ended(REFUSED, log.rpartition("unisono: ")[2].partition("\n")[0])
    if re.search(r"the loss became (nan|-?inf)", log):
        return Ended(DIVERGED, "the loss became nan or inf")
    return Ended(FAILED, f"exit code {code}:\n{log}")


def _log(folder: Path) -> str:
    return "\n".join(path.read_text()[-SHOWN:] for path in sorted(folder.glob("log-*.txt")))


def _lighten() -> None:
    """Leaves out what costs most of a tiny run and decides nothing: a plot, and a measurement for advice."""
    unisono.runs.recorder.plot_loss = lambda run: None
    unisono.training.epoch_end.shard_overhead = lambda *given: 1.0  # type: ignore[assignment]


def install(strike: Strike, marker: Path) -> None:
    """Into this process, and so into every rank that it forks. Strikes once: then `marker` exists."""
    live, step, meet, update = SupervisedRun._live, Learner.step, Member.barrier, Optimizer.update
    slot, left = -1, 0  # of this process, once it is a rank; meetings until it dies, 0: it does not

    def born(supervised_run: SupervisedRun, own: int, *rest: Any) -> Any:
        nonlocal slot
        slot = own
        return live(supervised_run, own, *rest)

    def stepped(learner: Learner, position: int, *rest: Any) -> None:
        nonlocal left
        due = position > strike.at * (learner._schedule.final - 2)  # the last step is two rounds before the end
        if due and slot == strike.rank and not marker.exists():
            if strike.moment == HALT:
                marker.touch()
                learner._strategy.ask_to_halt()
            elif strike.moment == STEP:
                die()
            else:
                left = left or strike.meetings
        step(learner, position, *rest)

    def met(member: Member, *rest: Any) -> bool:
        nonlocal left
        if left == 1 and strike.moment == BEFORE:
            die()
        last = meet(member, *rest)
        if left == 1 and strike.moment != BEFORE:
            die()
        left = max(0, left - 1)
        return last

    def updated(optimizer: Optimizer, params: Any, gradient: Any, state: Any, *rest: Any) -> None:
        if left and strike.moment == UPDATE:
            for vector in (params, *state):
                vector[: len(vector) // 2] += 1.0
            die()
        update(optimizer, params, gradient, state, *rest)

    def die() -> None:
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    SupervisedRun._live, Learner.step, Member.barrier, Optimizer.update = born, stepped, met, updated  # type: ignore[method-assign]


def _free_port() -> int:
    for port in random.Random().sample(PORTS, 100):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # somebody has it
    raise UnisonoError(f"no port from {PORTS[0]} to {PORTS[-1]} is free")
