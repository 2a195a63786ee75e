"""`unisono tune`: the fastest setting of a recipe on this machine, as a table and as a recipe to train with."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.cli.train import given_options, options_of_recipe
from unisono.errors import Interrupted, UnisonoError, UserError
from unisono.files import expand_user
from unisono.measure.tune.search import TuneOptions
from unisono.safe_print import print
from unisono.trust import Trust

OWN = ("out", "resume", "allow_change", "ranks", "threads", "shards")
"""Options of a recipe that tuning decides itself."""
Options = options_of_recipe(*OWN)
_TUNE, _NOTHING = TuneOptions(), Options()
TUNED = "tuned.toml"
FREE = 0.8
"""The share of the free memory that ranks may take unless an option says otherwise."""


def tune(
    recipe: str = "",
    /,
    search: Annotated[TuneOptions, Parameter(name="*", group=Group("The search", sort_key=-1))] = _TUNE,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    *,
    trust: TrustOption = False,
) -> None:
    """Find the ranks, threads, shards and batch with which a recipe is fastest on this machine.

    Every setting is tried for a second, those that come close to the best for longer; tuned.toml is the recipe with the
    best one. The same command goes on after an interruption; with more --seconds, after time ran out.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r4). Options given here override it.
    """
    from unisono.data.sources import check_data_dir
    from unisono.energy.meter import find_counters
    from unisono.environment.os_environ import detect
    from unisono.measure.options import sizes
    from unisono.measure.tune.candidates import candidates_of
    from unisono.measure.tune.search import TrialOptions
    from unisono.measure.tune.search import tune as search_best
    from unisono.os_limits import check_temporary_directory
    from unisono.recipe.reading import load
    from unisono.report.run.outcome_and_advice import plural
    from unisono.resources import available_bytes, usable_cores
    from unisono.strategies.registry import of
    from unisono.study.provenance import inputs_of, write_about
    from unisono.study.study_directory import Records, default_path, writing
    from unisono.supervise.signals import as_ctrl_c
    from unisono.training.checks import check_machine

    loaded = load(recipe, given_options(options))
    check_data_dir(loaded.data.name, loaded.data.directory)
    if not of(loaded).supports.tune or loaded.strategy.transport not in ("auto", "shm"):
        raise UserError(
            f"tune with --strategy {loaded.strategy.name} and --transport {loaded.strategy.transport}: it tries sync "
            "on this machine",
            hint="leave both out",
        )
    if search.objective == "energy" and not loaded.output.watts_per_core and not find_counters().found:
        raise UserError(
            "--objective energy with --watts-per-core 0: this machine has no counters of energy, so none can be told",
            hint="give the watts of a busy core, such as --watts-per-core 8",
        )
    if (size := detect().size) > 1:
        raise UserError(f"tune was started as {size} ranks, and starts its own", hint="run it once: unisono tune")
    confirm_trust(Trust.of(loaded, given_options(options), recipe, trusted=trust), loaded)
    cells = candidates_of(loaded, search, usable_cores())
    check_temporary_directory()
    for cell in cells:
        check_machine(cell.recipe)
    limit = sizes(search.memory, "--memory")[0] if search.memory else int(FREE * available_bytes())
    studied: dict[str, Any] = {"cells": {cell.name: cell.digest for cell in cells}, "objective": search.objective}
    studied |= inputs_of([loaded])
    path = expand_user(search.out) if search.out else default_path("tune", loaded, studied)
    told = f"unisono tune: {plural(len(cells), 'setting')} on {plural(usable_cores(), 'core')}, in {path}"
    print(told, file=sys.stderr, flush=True)
    with Records.open(path, "tune", studied) as records, as_ctrl_c():
        with writing(path):
            write_about(path, [cell.recipe for cell in cells])
        # With an accuracy to reach, half of the time is for getting there.
        short = replace(search, seconds=search.seconds / 2) if loaded.learning.target_accuracy else search
        try:
            outcome = search_best(records, cells, TrialOptions(short, limit), _say)
            best = outcome.best
            if best is not None and loaded.learning.target_accuracy:
                left_s = search.seconds - sum(record["elapsed_s"] for record in records.all)
                best = _fastest_to_target(records, cells, outcome.ranked(), left_s, retry=search.retry) or best
        except KeyboardInterrupt:
            if records.all:
                _show(records.all, None, path, {"objective": search.objective, "complete": False})
            raise Interrupted(str(path), early=not records.all) from None
        known = {"objective": search.objective, "complete": outcome.complete, "candidates": len(cells)}
        _show(records.all, best, path, known)
        found = next((cell for cell in cells if cell.digest == best), None)
        if found is None:
            raise UnisonoError(
                "no setting could be tried: the reasons are above", hint="give other settings, or more --seconds"
            )
        if len(outcome.rounds) < len(cells) and len(outcome.scores) < 2:
            raise UnisonoError(
                f"time ran out (--seconds {search.seconds:g}) before two settings were measured: {TUNED} is not "
                "written",
                hint="give more --seconds: what was tried is kept, and the search goes on from there",
            )
        with writing(path / TUNED):
            found.recipe.with_options(out="").save(path / TUNED)
    print(f"Written: {path / TUNED}: unisono train {path / TUNED}")


def _fastest_to_target(
    records: Any, cells: Sequence[Any], ranked: Sequence[str], left_s: float, *, retry: bool
) -> str | None:
    from unisono.measure.tune.time_to_accuracy import train_to_target

    by_digest = {cell.digest: cell for cell in cells}
    chosen: dict[str, Any] = {}
    for digest in ranked:  # the best first
        chosen.setdefault(by_digest[digest].labels.get("batch_size", ""), by_digest[digest])
    reached = train_to_target(records, list(chosen.values()), left_s, _say, retry=retry)
    return min(reached, key=lambda digest: reached[digest], default=None)


def _say(record: dict[str, Any]) -> None:
    if record["status"] != "finished":
        told = record["reason"]
    elif "train_s" in record:
        told = f"{record['train_s']:.1f} s of training to the accuracy"
    else:
        told = f"{record['samples_per_s']:,.0f} samples/s in {record['seconds']:g} s"
    print(f"{record['cell']}: {told}", file=sys.stderr, flush=True)


def _show(records: Sequence[dict[str, Any]], best: str | None, path: Path, known: dict[str, Any]) -> None:
    """known: what every row says of the search: its objective, whether it is complete, how many candidates it has."""
    from unisono.report.studies.tune import rows_of, table, words_of
    from unisono.report.terminal.console import Console
    from unisono.resources import usable_cores
    from unisono.study.study_directory import writing

    rows = [row | known | {"machine_cores": usable_cores()} for row in rows_of(records)]
    made = table(rows, best or "")
    terminal = Console(width=None if sys.stdout.isatty() else 110, markup=False)
    terminal.print(made.shown(rows, terminal.width))
    print("\n".join(words_of(rows, best or "", known["objective"], complete=known["complete"])))
    with writing(path):
        made.write(rows, path, "tune")
