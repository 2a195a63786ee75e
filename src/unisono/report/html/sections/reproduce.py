"""Reproduce: the command that trains the same again, in full; of a study the one that was given.

The one idea: only options that differ from their defaults are written, quoted for a shell; what a launcher decided
(ranks under mpirun) is part of the command. Limits: data and own code (`file.py:function`) must be where they were; a
recipe of another version of unisono may not be known to this one, and then the page says so.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unisono.errors import UserError
from unisono.recipe import OPTIONS, Recipe, flag
from unisono.recipe.reading import from_values
from unisono.report.html.blocks import Block, Code, Section, Text
from unisono.report.run.load import Run
from unisono.report.run.verdict import plural
from unisono.strategies.registry import find

_GOING_ON = {"scale", "compare", "predict", "tune"}
"""Studies that go on where they were left."""
_OF_ONE_RUN = ("out", "resume", "allow_change")


def section(runs: Sequence[Run]) -> Section | None:
    """A command a run, or a study."""
    blocks: list[Block] = []
    for run in runs:
        found = _run(run) if run.recipe else _study(run)
        blocks += [Text(run.name), *found] if found and len(runs) > 1 else found
    return Section("How to reproduce it", blocks) if blocks else None


def _run(run: Run) -> list[Block]:
    try:
        recipe = from_values(dict(run.recipe), "recipe.toml")
    except UserError as error:
        return [Text(f"This version of unisono cannot run the recipe: {error}", "warning")]
    blocks: list[Block] = [Code(command(recipe, mpi=run.summary.get("transport") == "mpi"))]
    if found := run.summary.get("weights_sha256"):
        blocks.append(Text(f"weights_sha256 {found}, {_same(run, recipe)}, with {_versions(run.summary)}.", "note"))
    if run.summary.get("resumed_from"):
        blocks.append(Text(f"The run was resumed from {run.summary['resumed_from']}; it need not be.", "note"))
    return blocks


def _study(run: Run) -> list[Block]:
    """Of a study: what was typed."""
    given = run.about.get("command")
    if not isinstance(given, str) or not given:
        return []
    told = f"With {_versions(run.about)}, from the directory in which it was given"
    told += "; with another --out all is measured anew"
    told += ", with this one what is missing." if _GOING_ON & run.studies.keys() else "."
    return [Code(given), Text(told, "note")]


def _versions(told: Mapping[str, Any]) -> str:
    """Of unisono, and of what computed besides NumPy, as a summary or a study tells it."""
    machine = told.get("machine")
    known = machine if isinstance(machine, dict) else {}
    found = [f"{name} {known[name]}" for name in ("torch", "accelerate") if isinstance(known.get(name), str)]
    return " and ".join([f"unisono {told.get('version')}", *found])


def _same(run: Run, recipe: Recipe) -> str:
    """When the weights come out the same."""
    spec = find(recipe.strategy.name, recipe.strategy.allreduce)
    if spec is not None and spec.asynchronous:
        return _same_order(run, recipe)
    any_ranks = spec is not None and spec.supports.any_ranks and not spec.shards_are_replicas
    if any_ranks and not recipe.learning.batch_size_per_rank:
        reach = f"1 to {recipe.ranks.shards} ranks" if recipe.ranks.shards > 1 else "1 rank"
        return f"the same on {reach} of the same machine"
    return f"the same on {plural(recipe.ranks.count, 'rank')} of the same machine"


def _same_order(run: Run, recipe: Recipe) -> str:
    """Of an asynchronous run. What cannot be repeated is known to `--order`, which reads the pushes; this says when."""
    disturbed = bool(run.summary.get("takeovers") or run.summary.get("resumed_from"))
    if recipe.strategy.order == "free":
        repeat = f"others every time; add --order {shlex.quote(str(run.path / 'pushes.csv'))} to repeat it bit by bit"
        but = ", which is refused for epochs in which a worker was replaced or the run resumed"
    else:
        repeat = f"the same on {recipe.ranks.count} ranks of the same machine, while no worker dies"
        but = "; here ranks died or the run was resumed, which may have made them others"
    return repeat + but * disturbed


def command(recipe: Recipe, *, mpi: bool = False) -> str:
    """A line for a shell."""
    words = ["mpirun", "-n", f"{recipe.ranks.count}"] if mpi else []
    words += ["unisono", "train"]
    for field in OPTIONS.values():
        value = recipe.option(field.name)
        if value == field.default or field.name in _OF_ONE_RUN:
            continue
        if field.name == "batch_size" and recipe.learning.batch_size_per_rank:
            continue  # which goes before it
        if isinstance(value, bool):
            words.append(flag(field.name) if value else flag(f"no_{field.name}"))
        else:
            words += [flag(field.name), str(value)]
    return shlex.join(words)
