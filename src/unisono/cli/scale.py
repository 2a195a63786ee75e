"""`unisono scale`: its options, what it shows, what it writes."""

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
from unisono.measure.scale_grid import ScaleOptions
from unisono.safe_print import print
from unisono.trust import Trust

OWN = ("out", "resume", "allow_change", "ranks")
"""Options of a recipe that a study decides itself."""
Options = options_of_recipe(*OWN)
_SCALE, _STUDY, _NOTHING = ScaleOptions(), StudyOptions(), Options()
_JOBS, _WAITING = JobChoices(), Waiting()
STUDY_GROUP = Group("The study", sort_key=-1)


def scale(
    recipe: str = "",
    /,
    grid: Annotated[ScaleOptions, Parameter(name="*", group=STUDY_GROUP)] = _SCALE,
    study: Annotated[StudyOptions, Parameter(name="*", group=STUDY_GROUP)] = _STUDY,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    jobs: Annotated[JobChoices, Parameter(name="*")] = _JOBS,  # type: ignore[valid-type]
    waiting: Annotated[Waiting, Parameter(name="*", group=STUDY_GROUP)] = _WAITING,
    *,
    trust: TrustOption = False,
) -> None:
    """Train the same on more and more ranks: a table, speed-up and efficiency, the laws of Amdahl and Gustafson.

    Every cell of the grid is `unisono train` in a process of its own, several times, in an order that does not favour
    one. Tables, scale.svg and every run are in the study's directory. After an interruption the same command goes on.
    With --slurm every run is a job, on as many nodes as the cell says.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r2). Options given here override it.
    """
    from unisono.cli.common.study_command import StudyPlan
    from unisono.cli.common.study_command import run_study as carry_out
    from unisono.measure.scale_grid import cells_of_grid, default_grid
    from unisono.recipe.reading import load
    from unisono.resources import usable_cores
    from unisono.strategies.registry import of

    loaded = load(recipe, given_options(options))
    if not of(loaded).supports.scale:
        raise UserError(
            f"scale with --strategy {loaded.strategy.name}: its ranks are masters and workers, and a push is as "
            "large on "
            "any number",
            hint=f"compare them: unisono compare --strategy {loaded.strategy.name} --over masters+ranks=1+2,1+3,1+5",
        )
    runner = runner_of(jobs, waiting)
    asked = grid.grid or default_grid(usable_cores())
    cells = cells_of_grid(loaded, asked, weak=grid.weak, several=runner is not None)
    # A job has a core for every thread of its ranks.
    cores = (
        usable_cores() if runner is None else max(cell.recipe.ranks.count * cell.recipe.ranks.threads for cell in cells)
    )
    plan = StudyPlan("scale", cells, study, runner)
    if not study.dry_run:
        confirm_trust(Trust.of(loaded, given_options(options), recipe, trusted=trust), loaded)
    carry_out(plan, lambda records, path: show(cells, records, path, weak=grid.weak, cores=cores))


def show(cells: Sequence[Any], records: Sequence[dict[str, Any]], path: Path, *, weak: bool, cores: int) -> None:
    """The table and what it means; all of it, and the plot, in files. cores: that a node has for its ranks."""
    from unisono.cli.common.study_command import console
    from unisono.report.studies.scale import rows_of, table
    from unisono.report.studies.scale_plot import plot
    from unisono.report.studies.scaling_limits import words_of

    rows = rows_of(cells, records, weak=weak, cores=cores)
    made = table(rows)
    terminal = console()
    terminal.print(made.shown(rows, terminal.width))
    words = words_of(rows)
    print("\n".join(words))
    written = made.write(rows, path, "scale")
    write_file(path / "scale.txt", "\n".join(words) + "\n")
    plot(rows, path / "scale.svg")
    print(f"Written: {', '.join(one.name for one in written)}, scale.txt, scale.svg in {path}")
