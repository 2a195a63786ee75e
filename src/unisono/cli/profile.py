"""`unisono profile`: where the time of a recipe's steps goes, in tables, JSON and a trace."""

import sys
from typing import Annotated, Any

from cyclopts import Group, Parameter

from unisono.cli.bench import prepare_out
from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.cli.train import Options, given_options
from unisono.errors import UnisonoError
from unisono.measure.options import ProfileOptions
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.safe_print import print
from unisono.trust import Trust

_DEFAULTS = ProfileOptions()
_NOTHING = Options()
WIDTH = 110
"""Width of tables that do not go to a terminal, in characters."""
_PROFILE = Group("What to look at", sort_key=-1)


def profile(
    recipe: str = "",
    /,
    look: Annotated[ProfileOptions, Parameter(name="*", group=_PROFILE)] = _DEFAULTS,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    *,
    trust: TrustOption = False,
) -> None:
    """Show where the time of a recipe's steps goes: phases of every rank, modules, operators, memory.

    The recipe is trained for some batches on its own ranks. --out DIRECTORY keeps profile.json and trace.json, which
    ui.perfetto.dev shows with all ranks on one clock.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r4). Options given here override it.
    """
    from unisono.measure.profile.study import measure, plan
    from unisono.report.run.outcome_and_advice import plural
    from unisono.report.studies.profile import FILES, Shown, activations, sentences, tables, write
    from unisono.report.terminal.console import Console
    from unisono.study.provenance import write_about
    from unisono.study.study_directory import writing
    from unisono.supervise.signals import as_ctrl_c

    asked = load(recipe, given_options(options))
    confirm_trust(Trust.of(asked, given_options(options), recipe, trusted=trust), asked)
    jobs = plan(asked, look)
    out = prepare_out(asked.output.directory, FILES)
    if out is not None:
        with writing(out, after=""):
            # Now: whatever ends it, the directory says what it is.
            write_about(out, [_as_asked(job.recipe, asked) for job in jobs])
    console, shown = (
        Console(width=None if sys.stdout.isatty() else WIDTH, markup=False),
        Shown(look.sort, look.memory, look.shapes, look.top),
    )
    records: list[dict[str, Any]] = []
    with as_ctrl_c():
        try:
            for job in jobs:
                found = job.recipe
                told = f", {found.model.activation}" if look.activations else ""
                print(
                    f"unisono profile: {found.model.name}{told} on {found.data.name}; {found.model.engine} engine, "
                    f"{plural(found.ranks.count, 'rank')} x {plural(found.ranks.threads, 'thread')}",
                    flush=True,
                )
                try:
                    records.append(measure(job, look))
                except UnisonoError as error:
                    if len(jobs) == 1:
                        raise
                    print(f"{found.model.activation} is left out: {error}", file=sys.stderr, flush=True)
                else:
                    print("\n".join(sentences(records[-1])))
        finally:
            # Also after Ctrl-C or SIGTERM: what was measured is not lost.
            if records:
                shown_tables = [activations(records, shown)] if look.activations else tables(records[0], shown)
                console.print(*shown_tables, sep="")
                if out is not None:
                    with writing(out, after=""):
                        written = write(records, out)
                    print("Written: " + ", ".join(str(path) for path in written))
    if not records:
        raise UnisonoError("none of the activations could be profiled: the reasons are above")


def _as_asked(found: Recipe, asked: Recipe) -> Recipe:
    """A recipe of a profile has epochs for its batches, and no snapshots: neither is what the user gave."""
    return found.with_options(epochs=asked.learning.epochs, snapshot_every=asked.faults.snapshot_every)
