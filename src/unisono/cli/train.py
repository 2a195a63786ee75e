"""`unisono train`: load a recipe, start the ranks, show an epoch a line, end with a verdict."""

import time
from dataclasses import MISSING, field, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from unisono.errors import RankFailed, UnisonoError
from unisono.recipe import Recipe, load

if TYPE_CHECKING:
    from unisono.train.job import Job


def _overrides() -> type:
    """A dataclass with the options of `Recipe`, all None unless given: what is not given comes from the recipe."""
    import docstring_parser

    help_of = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(Recipe).params}
    options = []
    for entry in fields(Recipe):
        default = "" if entry.default in ("", MISSING) else f" [default: {entry.default}]"
        told = Parameter(help=f"{help_of[entry.name]}{default}", show_default=False)
        options.append((entry.name, Annotated[entry.type | None, told], field(default=None, kw_only=True)))  # type: ignore[operator]
    made = make_dataclass("Options", options, frozen=True)
    made.__module__ = __name__
    return made


Options = _overrides()
_NOTHING = Options()


def train(recipe: str = "", /, options: Annotated[Options, Parameter(name="*")] = _NOTHING) -> None:  # type: ignore[valid-type]
    """Train a network on this machine, on as many ranks as asked: more ranks change nothing but the time.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a shipped recipe (r2). Options given here go before it.
    """
    given = {entry.name: getattr(options, entry.name) for entry in fields(Recipe)}
    run_recipe(load(recipe, {name: value for name, value in given.items() if value is not None}))


def run_recipe(recipe: Recipe) -> dict[str, Any]:
    """Runs a recipe from start to verdict; the summary."""
    from unisono import __version__
    from unisono.launch.local import run
    from unisono.report.loss import plot_loss
    from unisono.resources import usable_cores
    from unisono.train.job import prepare
    from unisono.train.rundir import RunDirectory
    from unisono.train.trainer import train as train_rank

    begun = time.perf_counter()
    job = prepare(recipe)
    directory = RunDirectory.make(recipe.out, job.recipe)
    parameters = list(job.model().layout.names)
    print(_opening(job, usable_cores()), flush=True)

    def on_report(rank: int, record: dict[str, Any]) -> None:
        directory.add(record, parameters)
        if recipe.log_ranks:
            print(_ranks(record, parameters), flush=True)
        print(_epoch(record["metrics"], recipe.epochs), flush=True)

    facts = {
        "status": "failed", "ranks": recipe.ranks, "nodes": 1, "shards": job.recipe.shards, "strategy": "sync",
        "transport": "shm", "engine": "numpy", "precision": "fp32", "model": recipe.model, "data": recipe.data,
        "global_batch": job.plan.global_batch, "version": __version__,
    }  # fmt: skip
    try:
        found = run(lambda world: train_rank(world, job, directory.weights), recipe.ranks, on_report=on_report)[0]
    except RankFailed as error:
        directory.finish(facts | {"error": error.report})
        if error.report.startswith("Traceback"):
            raise
        raise UnisonoError(f"{error.report}\nWhat was reached is in {directory.path}") from None
    wall_s = time.perf_counter() - begun
    sync_s = found["wait_s"] + found["update_s"]
    summary: dict[str, Any] = facts | found | {"status": "finished", "wall_s": wall_s, "sync_s": sync_s}
    summary["samples_per_s"] = found["samples"] / found["train_s"]
    directory.finish(summary)
    plot_loss(directory.path)
    print(_verdict(summary, str(directory.path)), flush=True)
    return summary


def _opening(job: "Job", cores: int) -> str:
    recipe, plan = job.recipe, job.plan
    lines = [
        f"unisono train: {recipe.model} on {recipe.data}, {plan.samples} samples; NumPy engine, shared memory, "
        f"{recipe.ranks} ranks x {recipe.threads} threads on {cores} cores",
        f"{recipe.shards} shards: same bits on 1-{recipe.shards} ranks; global batch {plan.global_batch}, "
        f"{plan.steps_per_epoch} steps an epoch",
    ]
    if recipe.batch_size_per_rank and recipe.ranks > 1 and recipe.scale_lr == "none":
        lines.append("Note: the global batch grows with the ranks and so does the result; --scale-lr linear may help.")
    if recipe.shards % recipe.ranks:
        lines.append(f"Note: {recipe.shards} shards do not divide among {recipe.ranks} ranks: some will wait.")
    return "\n".join(lines)


def _epoch(metrics: dict[str, Any], epochs: int) -> str:
    told = f"epoch {metrics['epoch']}/{epochs}  {metrics['epoch_s']:.2f} s  {metrics['samples_per_s']:,.0f} samples/s"
    for part in ("train", "validation", "test"):
        if f"{part}_loss" in metrics:
            told += f"  {part} loss {metrics[f'{part}_loss']:.4f}"
            if metrics[f"{part}_accuracy"]:
                told += f" accuracy {metrics[f'{part}_accuracy']:.4f}"
    return told


def _ranks(record: dict[str, Any], parameters: list[str]) -> str:
    lines = []
    for rank, (times, shares) in enumerate(zip(record["ranks"], record["shares"], strict=True)):
        told = [f"Epoch {record['metrics']['epoch']}, rank {rank}:"]
        for name, (contribution, _, mean) in zip(parameters, shares, strict=True):
            told.append(f"mean grad {name} {mean:.6f}, {name} contribution {100 * contribution:.2f} %,")
        lines.append(" ".join(told) + f" sync time {times[2] + times[3]:.6f} s")
    return "\n".join(lines)


def _verdict(summary: dict[str, Any], path: str) -> str:
    spent = {name: summary[f"{name}_s"] for name in ("compute", "data", "update", "wait")}
    total = sum(spent.values()) or 1.0
    shares = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in spent.items())
    lines = []
    if summary["stopped_early"]:
        lines.append(f"Stopped early after epoch {summary['epochs']}: {summary['stopped_early']}.")
    score = f"test loss {summary['test_loss']:.4f}" if summary["test_loss"] is not None else "no test data"
    if summary["test_accuracy"]:
        score = f"test accuracy {100 * summary['test_accuracy']:.2f} %, {score}"
    lines += [
        f"{score}; {summary['train_s']:.2f} s of training, {summary['samples_per_s']:,.0f} samples/s.",
        f"Rank 0 spent its time on: {shares}; the first synchronisation took {1000 * summary['first_sync_s']:.1f} ms.",
        f"weights {summary['weights_sha256'][:16]}...; everything is in {path}",
    ]
    return "\n".join(lines)
