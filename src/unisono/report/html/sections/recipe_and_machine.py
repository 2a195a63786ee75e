"""What ran: the command that repeats it, its recipe, its machine; in what several runs differ.

The one idea: of the command only options that differ from their defaults are written, quoted for a shell; what a
launcher decided (ranks under mpirun) is part of it. For a study it is the command that was given, and the recipe holds
the options on which its runs agree. Of the options those that differ from their defaults come first.

Limits: data and own code (`file.py:function`) must be where they were; this version of unisono may not know a recipe of
another version, and then the page says so.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unisono.errors import UserError
from unisono.recipe import OPTIONS, Recipe, flag
from unisono.recipe.reading import from_values
from unisono.report.html.blocks import Block, Code, Fold, Section, Table, Text
from unisono.report.html.number_text import bytes_of
from unisono.report.run.load import Run
from unisono.report.run.outcome_and_advice import plural
from unisono.strategies.registry import find

_GOING_ON = {"scale", "compare", "predict", "tune"}
"""Studies that go on where they were left."""
_OF_ONE_RUN = ("out", "resume", "allow_change")


def commands(runs: Sequence[Run]) -> Section | None:
    """A command for each run or study."""
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
    """The command of a study, as it was typed."""
    given = run.about.get("command")
    if not isinstance(given, str) or not given:
        return []
    told = f"With {_versions(run.about)}, from the directory in which it was given"
    told += "; with another --out all is measured anew"
    told += ", with this one what is missing." if _GOING_ON & run.studies.keys() else "."
    return [Code(given), Text(told, "note")]


def _versions(told: Mapping[str, Any]) -> str:
    """The versions of unisono and of the libraries that computed besides NumPy, from a summary or a study."""
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
    """The same for an asynchronous run; `--order` reads the pushes and refuses what cannot be repeated."""
    disturbed = bool(run.summary.get("takeovers") or run.summary.get("resumed_from"))
    if recipe.strategy.order == "free":
        order = shlex.quote(str(run.path / "pushes.csv"))
        repeat = f"different every time; add --order {order} to repeat it bit by bit"
        but = ", which is refused for epochs in which a worker was replaced or the run resumed"
    else:
        repeat = f"the same on {recipe.ranks.count} ranks of the same machine, while no worker dies"
        but = "; here ranks died or the run was resumed, which may have changed them"
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


def recipes(runs: Sequence[Run]) -> Section | None:
    """A table for each run, folded; `differences` shows in what several differ."""
    blocks: list[Block] = []
    for run in runs:
        if recipe := recipe_of(run):
            rows = [[str(name), str(value)] for name, value in recipe.items()]
            changed = [row for row in rows if row[0] not in OPTIONS or OPTIONS[row[0]].default != recipe[row[0]]]
            blocks += [Text(told, "note") for told in _varied(run)]
            head = ("option", f"value in {run.name}" if len(runs) > 1 else "value")
            whose = f"{run.name}: a" if len(runs) > 1 else "A"
            blocks.append(Table(head, changed) if changed else Text(f"{whose}ll options have their defaults.", "note"))
            blocks += [Fold("All options", [Table(("option", "value"), rows)])]
    return Section("Recipe", blocks) if blocks else None


def recipe_of(run: Run) -> dict[str, Any]:
    """The options; of a study those on which its runs agree."""
    common = run.about.get("recipe")
    return run.recipe or (common if isinstance(common, dict) else {})


def _varied(run: Run) -> list[str]:
    """The options in which the runs of a study differ."""
    names = run.about.get("varied")
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        return []
    return [f"What all runs of the study have in common. They differ in {', '.join(map(flag, names))}."]


def differences(runs: Sequence[Run]) -> Section | None:
    """A column for each run."""
    trained = [run for run in runs if run.trained]
    if len(trained) < 2:
        return None
    rows = differing([run.recipe for run in trained]) + differing([facts_of(run) for run in trained])
    if not rows:
        return Section("What differs", [Text("Nothing: the recipes and the machines are the same.")])
    return Section("What differs", [Table(("option", *(run.name for run in trained)), rows)])


def facts_of(run: Run) -> dict[str, Any]:
    """The machine and the version of unisono of a run or a study."""
    told = run.summary or run.about
    machine = told.get("machine")
    found = {f"machine: {name}": value for name, value in machine.items()} if isinstance(machine, dict) else {}
    return found | ({"unisono": told["version"]} if "version" in told else {})


def differing(tables: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows whose values are not all equal: the name, and the value in each table."""
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [[name, *("-" if name not in table else str(table[name]) for table in tables)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def machines(runs: Sequence[Run]) -> Section | None:
    """A column for each run."""
    tables = [(run.name, facts_of(run)) for run in runs if facts_of(run)]
    if not tables:
        return None
    names = dict.fromkeys(name for _, facts in tables for name in facts)
    rows = [
        [name.removeprefix("machine: "), *(_text(name, facts.get(name, "")) for _, facts in tables)] for name in names
    ]
    head = [name for name, _ in tables] if len(tables) > 1 else [""]
    return Section("Machine", [Table(("", *head), rows)])


def _text(name: str, value: object) -> str:
    return bytes_of(value) or str(value) if name.endswith("_bytes") else str(value)
