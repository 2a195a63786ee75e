"""`unisono compare`: its options, what it shows, what it writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from unisono.cli.common.study_jobs import JobChoices, Waiting, runner_of
from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.cli.train import given_options, options_of_recipe
from unisono.errors import UserError
from unisono.files import write_file
from unisono.measure.options import StudyOptions
from unisono.safe_print import print
from unisono.trust import Trust

Options = options_of_recipe("out", "resume", "allow_change")
_STUDY, _NOTHING, _JOBS, _WAITING = StudyOptions(), Options(), JobChoices(), Waiting()
STUDY_GROUP = Group("The study", sort_key=-1)
OVER = """An option and its values, such as strategy=sync,ddp. Several of these make up all combinations, the first of
    which the others are compared with. Options that vary together are joined: strategy+ranks=sync+1,async+4. Values
    that have a comma in them are separated by a bar: "model=mlp:128,64|mlp:32"."""
GRID = """Nodes x ranks of a node, such as 1x1,1x2,2x1: every combination on each of them, the batch per rank, if the
    recipe has one, as it is. Several nodes with --slurm only."""


def compare(
    recipe: str = "",
    /,
    over: Annotated[list[str] | None, Parameter(help=OVER, group=STUDY_GROUP, negative="", show_default=False)] = None,
    study: Annotated[StudyOptions, Parameter(name="*", group=STUDY_GROUP)] = _STUDY,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    jobs: Annotated[JobChoices, Parameter(name="*")] = _JOBS,  # type: ignore[valid-type]
    waiting: Annotated[Waiting, Parameter(name="*", group=STUDY_GROUP)] = _WAITING,
    *,
    grid: Annotated[str, Parameter(help=GRID, group=STUDY_GROUP)] = "",
    trust: TrustOption = False,
) -> None:
    """Train the same over any option of the recipe: one table, ratios, equal bits, and why what failed did.

    Every combination is `unisono train` in a process of its own, several times, in an order that does not favour one.
    Tables and every run are in the study's directory. After an interruption the same command goes on. With --slurm
    every run is a job.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r4). Options given here override it.
    """
    from unisono.cli.common.study_command import StudyPlan
    from unisono.cli.common.study_command import run_study as carry_out
    from unisono.measure.scale_grid import cells_with_grid
    from unisono.recipe.reading import load
    from unisono.study.cells import cells_of
    from unisono.study.cells import over as parse

    if not over and not grid:
        raise UserError("compare without --over: there is nothing to compare", hint="such as --over strategy=sync,ddp")
    runner = runner_of(jobs, waiting)
    overs = [parse(text) for text in over or []]
    loaded = load(recipe, given_options(options))
    cells = cells_of(loaded, overs)
    names = [option for entry in overs for option in entry.options]
    if grid:
        names.append("grid")
        cells = cells_with_grid(cells, grid, several=runner is not None)
    if not study.dry_run:
        confirm_trust(Trust.of(loaded, {*given_options(options), *names}, recipe, trusted=trust), loaded)
    carry_out(StudyPlan("compare", cells, study, runner), lambda records, path: show(cells, names, records, path))


def show(cells: Sequence[Any], options: Sequence[str], records: Sequence[dict[str, Any]], path: Path) -> None:
    """The table and what stands out; all of it in files."""
    from unisono.cli.common.study_command import console
    from unisono.report.studies.compare import rows_of, table, words_of

    rows = rows_of(cells, records)
    made = table(rows, options)
    terminal = console()
    terminal.print(made.shown(rows, terminal.width))
    words = words_of(rows)
    print("\n".join(words))
    written = made.write(rows, path, "compare")
    write_file(path / "compare.txt", "\n".join(words) + "\n")
    print(f"Written: {', '.join(one.name for one in written)}, compare.txt in {path}")
