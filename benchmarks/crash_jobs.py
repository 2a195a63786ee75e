"""The small runs that `crash_points.py` kills at every line: what each is, how it goes on, and what it has found.

The one idea: a job is run by the real code (`run_recipe`, or `unisono.run` for a loop of one's own) until it has come
to its end: a run that was asked to end, or whose supervising process was killed, is started again, on another number of
ranks. What counts is what it leaves: the hash of the weights and the numbers of its epochs.

    JOBS["sync"].work(folder, Tracer(MessageStats(), faults)); JOBS["sync"].found(folder)

Shapes are odd on purpose: 13 features, and 68 rows in batches of 24, of which the last has three shards of 6 and one
of 2 samples, on 3 ranks.
"""

import csv
import hashlib
import json
import os
import signal
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from crash_tracer import KILL, Fault, Tracer

import unisono
from unisono.arena.membership.member import Member
from unisono.arena.sync.waiting import wait_until
from unisono.errors import RESUME_ME, AskedToEnd, UnisonoError
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of
from unisono.storage.snapshots.snapshot import newest
from unisono.training.job import prepare
from unisono.world import World

HERE = Path(__file__).parent
RANKS, ROWS = 3, 68
PATIENCE_S = 1.0
"""How long ranks wait for a replacement before they go on without it: these runs would be over before one has come."""
DEATH, SECOND, REPLACEMENT = "death", "second death", "death of a replacement"
WRITER, SUPERVISOR, HALT, HALTING = "death of a writer", "death of the supervisor", "halt", "death in a halt"
RESUMED = "death after a resume"
KINDS = (DEATH, SECOND, REPLACEMENT, WRITER, SUPERVISOR, HALT, HALTING, RESUMED)

Found = dict[str, Any]


class _Halted(UnisonoError):
    exit_code = RESUME_ME


class Job(ABC):
    """One kind of run."""

    most_faults = 3
    """In one run."""

    def __init__(self, name: str, kinds: dict[str, float]) -> None:
        """kinds: what is done to it, and how often in relation to the others."""
        self.name, self.kinds = name, kinds

    @abstractmethod
    def work(self, folder: Path, tracer: Tracer | None) -> object:
        """To the end, or until something ends it; called again it goes on. None: on one rank, and nobody is killed."""

    @abstractmethod
    def found(self, folder: Path) -> Found:
        """What it has found; empty if it has not come to its end."""

    def expected(self, quiet: Found, found: Found, faults: Sequence[Fault]) -> Found:
        """What it should have found after these faults."""
        return quiet


@final
class Training(Job):
    """`unisono train`."""

    def __init__(self, name: str, recipe: Recipe, kinds: dict[str, float], *, waits: bool = True) -> None:
        """waits: ranks wait for replacements."""
        super().__init__(name, kinds)
        self._recipe, self._waits = recipe, waits

    def work(self, folder: Path, tracer: Tracer | None) -> object:
        _leave_out("unisono.training.epoch_end", "shard_overhead", 1.0)  # 50 ms a run
        _leave_out("unisono.runs.recorder", "plot_loss", None)  # 200 ms
        runs = sorted(folder.glob("run-*"))
        if runs and newest(runs[-1] / "snapshots").snapshot is not None:
            ranks = self._recipe.ranks.count if self._recipe.strategy.name == "async" else 2
            recipe = recipe_of(str(runs[-1]), {"ranks": ranks})
        else:
            recipe = self._recipe.with_options(out=str(folder / f"run-{len(runs)}"))
        if tracer is None:
            alone = recipe.strategy.name != "async"
            return run_recipe(recipe.with_options(ranks=1) if alone else recipe)
        if self._waits:
            _wait_for_replacements()
        tracer.install("s")
        return run_recipe(recipe)

    def found(self, folder: Path) -> Found:
        for run in folder.glob("run-*"):
            path = run / "summary.json"
            summary = json.loads(path.read_text()) if path.exists() else {}
            if summary.get("status") == "finished":
                lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
                epochs = [{key: line[key] for key in sorted(line) if not key.endswith("_s")} for line in lines]
                kept = hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest()
                scores = [summary[name] for name in ("train_loss", "test_loss", "test_accuracy", "epochs", "steps")]
                return {"sha256": summary["weights_sha256"], "file": kept, "epochs": epochs, "scores": scores}
        return {}


@final
class Asynchronous(Job):
    """`--strategy async`: after the death of a worker, or a halt, other bits are right: those of its own log."""

    def __init__(self, name: str, recipe: Recipe, kinds: dict[str, float]) -> None:
        super().__init__(name, kinds)
        self._training, self._recipe = Training(name, recipe, kinds), recipe

    def work(self, folder: Path, tracer: Tracer | None) -> object:
        return self._training.work(folder, tracer)

    def found(self, folder: Path) -> Found:
        found = self._training.found(folder)
        if found:
            (run,) = (run for run in folder.glob("run-*") if (run / "weights.safetensors").exists())
            with open(run / "pushes.csv", newline="") as file:
                columns = "epoch", "rank", "batch", "greeted"
                found["pushes"] = [{name: int(row[name]) for name in columns} for row in csv.DictReader(file)]
        return found

    def expected(self, quiet: Found, found: Found, faults: Sequence[Fault]) -> Found:
        masters = {f"r{rank}" for rank in range(self._recipe.strategy.masters)} | {"s", "w"}
        if all(fault.role in masters and fault.kind == KILL for fault in faults):
            return quiet
        used = Counter((row["epoch"], row["batch"]) for row in found["pushes"])
        once = {(epoch, batch): 1 for epoch in (1, 2) for batch in range(len(quiet["pushes"]) // 2)}
        if any(fault.kind != KILL for fault in faults):  # the pushes before the halt are not in the log
            right = used.items() <= once.items() and len(found["epochs"]) == self._recipe.learning.epochs
            return found if right else {"batches used": dict(used)}
        orders = [_order([row for row in found["pushes"] if row["epoch"] == epoch]) for epoch in (1, 2)]
        return found | {"sha256": _plain_loop(self._recipe, orders) if used == once else f"that of {once}"}


def _order(rows: list[dict[str, int]]) -> list[tuple[int, int]]:
    """(rank, batch) of each push of an epoch, and (rank, -1) where a worker asked for parameters in the middle."""
    order: list[list[tuple[int, int]]] = [[] for _ in range(len(rows) + 1)]
    known: dict[int, int] = {}
    for row in rows:
        if row["greeted"] != known.get(row["rank"], 0):
            known[row["rank"]] = row["greeted"]
            order[row["greeted"]].append((row["rank"], -1))
    return [entry for at, row in enumerate(rows) for entry in (*order[at], (row["rank"], row["batch"]))]


def _plain_loop(recipe: Recipe, orders: list[list[tuple[int, int]]]) -> str:
    import tests_path  # noqa: F401

    from support.strategies.async_reference import reference

    return str(reference(prepare(recipe), orders))


@final
class OwnLoop(Job):
    """A loop over `world.batches` that keeps snapshots; nobody is replaced, so one of the three ranks must live."""

    most_faults = 2

    def work(self, folder: Path, tracer: Tracer | None) -> object:
        import torch

        torch.set_num_threads(1)
        again = (folder / "begun").exists()
        (folder / "begun").touch()
        if tracer is not None:
            tracer.install("s", later=True)
        warnings.simplefilter("ignore")  # they tell of deaths
        ranks = 1 if tracer is None else 2 if again else RANKS
        try:
            results = unisono.run(lambda world: self._train(world, folder / "kept", tracer), ranks, timeout_s=120.0)
        except AskedToEnd as asked:
            raise _Halted(str(asked)) from None
        found = [result for result in results if result is not None]
        (folder / "found.json").write_text(json.dumps(found))
        return found

    def found(self, folder: Path) -> Found:
        path = folder / "found.json"
        results = json.loads(path.read_text()) if path.exists() else []
        first: Found = results[0] if results else {}
        return first if all(result == first for result in results) else {"unlike each other": results}

    def _train(self, world: World, folder: Path, tracer: Tracer | None) -> Found:
        """On each rank. Before everybody shares the model a death ends the run, so that is not traced."""
        shared = self._share(world, folder)
        if tracer is not None:
            wait_until(_heard, PATIENCE_S * 20)  # till then a request would end the parent at once
            world.comm.barrier()
            tracer.begin()
        return self._loop(world, *shared)

    def _share(self, world: World, folder: Path) -> Any:
        import torch
        from crash_network import make

        torch.manual_seed(1)
        module = make((FEATURES,))
        model, optimizer = world.share(module, torch.optim.AdamW(module.parameters(), lr=0.01), clip=0.5, shards=4)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        own: dict[str, Any] = {"losses": []}
        unisono.keep(world, folder, every="1steps", scheduler=scheduler, own=own)
        return model, optimizer, scheduler, own

    def _loop(self, world: World, model: Any, optimizer: Any, scheduler: Any, own: dict[str, Any]) -> Found:
        import torch

        rng = np.random.default_rng(2)
        x = torch.from_numpy(rng.standard_normal((ROWS, FEATURES)).astype(np.float32))
        y = (x[:, 0] > 0).long()
        for batch in world.batches((x, y), batch_size=24, epochs=2):
            for samples, labels in batch:
                world.backward(torch.nn.functional.cross_entropy(model(samples), labels))
            optimizer.step()
            scheduler.step()
            own["losses"].append(batch.loss)
        digest = hashlib.sha256()
        for tensor in model.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        return {"sha256": digest.hexdigest(), "losses": own["losses"], "lr": scheduler.get_last_lr()}


def _heard() -> bool:
    """Whether the parent has a handler for requests to end."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{os.getppid()}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> signal.SIGTERM - 1 & 1)


def _leave_out(module: str, name: str, value: Any) -> None:
    """What takes time and decides nothing."""
    found = sys.modules.get(module)
    if found is not None and hasattr(found, name):
        setattr(found, name, lambda *given, **named: value)


def _wait_for_replacements() -> None:
    meet = Member.barrier

    def met(member: Member, position: int, phase: int) -> bool:
        if member.count < member.size:
            deadline = time.monotonic() + PATIENCE_S
            member.wait(lambda: time.monotonic() > deadline)  # or until the membership changes
        return meet(member, position, phase)

    Member.barrier = met  # type: ignore[method-assign]


FEATURES = 13
"""Odd, so that shards of one size do not fill whole borders of memory."""
_BASE = Recipe.from_options(
    ranks=RANKS, shards=4, model="bn-mlp:211", batch_size=24, epochs=2, optimizer="adam", clip=0.05,
    data=f"synthetic:classes=4,rows={ROWS},features={FEATURES},test_rows=300",
)  # fmt: skip
"""4,900 parameters: a block of 1024 for each rank; buffers, and norms."""
_TORCH = _BASE.with_options(engine="torch")
_TAKEN_OVER = {DEATH: 4.0, SECOND: 4.0, REPLACEMENT: 3.0, HALT: 1.0, HALTING: 1.0, RESUMED: 1.0}
_ODD = f"{HERE / 'crash_network.py'}:make"
_LIST: list[Job] = [
    Training("sync", _BASE, _TAKEN_OVER),
    Training("plain", _BASE.with_options(model="mlp:263", optimizer="momentum", clip=0.0), _TAKEN_OVER, waits=False),
    Training("local", _BASE.with_options(strategy="local", sync_every=2, clip=0.0), _TAKEN_OVER),
    Training(
        "snapshots",
        _BASE.with_options(snapshot_every="1steps", epochs=4),
        {DEATH: 2.0, SECOND: 1.0, WRITER: 2.0, SUPERVISOR: 4.0, HALTING: 1.0, RESUMED: 2.0},
    ),
    Asynchronous(
        "async",
        _BASE.with_options(strategy="async", order="round-robin", ranks=4, masters=2, batch_size=6, clip=0.0, shards=0),
        _TAKEN_OVER,
    ),
    Training("torch", _TORCH.with_options(model=_ODD), _TAKEN_OVER),
    Training("batchnorm", _TORCH.with_options(sync_batchnorm=True, clip=0.0, dropout=0.1), _TAKEN_OVER),
    OwnLoop("loop", {DEATH: 4.0, SECOND: 4.0, SUPERVISOR: 1.0, HALT: 1.0, HALTING: 1.0, RESUMED: 1.0}),
]
JOBS = {job.name: job for job in _LIST}
