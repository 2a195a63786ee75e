"""`unisono predict`: its options, the runs that calibrate it, what it shows and writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.cli.train import given_options, options_of_recipe
from unisono.errors import UserError
from unisono.files import expand_user, write_file
from unisono.measure.options import StudyOptions
from unisono.measure.prediction.predict import PredictOptions
from unisono.safe_print import print
from unisono.trust import Trust, code_of

if TYPE_CHECKING:
    from unisono.measure.prediction.cost import Costs, Work
    from unisono.measure.prediction.predict import PredictionRequest
    from unisono.study.cells import Cell

Options = options_of_recipe("out", "resume", "allow_change")
_WHERE, _STUDY, _NOTHING = PredictOptions(), StudyOptions(), Options()
STUDY_GROUP = Group("The study", sort_key=-1)
NETWORK = "Bandwidth of a node's link and latency, such as 10gbit,50us; several of these: a table each. " \
    "[default: 10gbit,50us]"  # fmt: skip


def predict(
    recipe: str = "",
    /,
    where: Annotated[PredictOptions, Parameter(name="*", group=STUDY_GROUP)] = _WHERE,
    network: Annotated[
        list[str] | None, Parameter(help=NETWORK, group=STUDY_GROUP, negative="", show_default=False)
    ] = None,
    study: Annotated[StudyOptions, Parameter(name="*", group=STUDY_GROUP)] = _STUDY,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    *,
    trust: TrustOption = False,
) -> None:
    """Predict time, efficiency and the best strategy on clusters that are not here.

    Short runs on this machine calibrate a cost model: computing by shard and sample, memory, jitter; you name the
    network. How far it is from runs that were held out is shown. The same command finds the runs again.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r2). Options given here override it.
    """
    from unisono.cli.common.study_command import StudyPlan
    from unisono.cli.common.study_command import run_study as carry_out
    from unisono.measure.prediction.calibration import calibration, usual_batch, usual_shards
    from unisono.measure.prediction.cost import Costs, Work, parse
    from unisono.measure.prediction.predict import PredictionRequest, node_counts
    from unisono.recipe.reading import load
    from unisono.study.provenance import write_about
    from unisono.study.study_directory import writing
    from unisono.training.job import prepare

    loaded = load(recipe, given_options(options))
    nodes, networks = node_counts(where.nodes), [parse(text) for text in network or ["10gbit,50us"]]
    if study.dry_run and (code := code_of(loaded)):
        raise UserError(
            f"predict --dry-run would have to run {', '.join(map(repr, code.values()))}: its plan follows from the "
            "data and the network",
            hint="leave --dry-run out",
        )
    confirm_trust(Trust.of(loaded, given_options(options), recipe, trusted=trust), loaded)
    job = prepare(loaded)
    ranks, samples, nbytes = (
        where.ranks_per_node or loaded.ranks.count,
        job.plan.samples,
        4 * sum(job.model().layout.sizes),
    )
    batch = usual_batch(loaded, samples)
    if loaded.learning.batch_size_per_rank:
        batch = loaded.learning.batch_size_per_rank * ranks
    work = Work(batch, max(ranks, usual_shards(loaded, batch)), nbytes, samples, loaded.ranks.threads)
    every = loaded.strategy.sync_every if isinstance(loaded.strategy.sync_every, int) else 16
    request = PredictionRequest(
        nodes, ranks, networks, bool(loaded.learning.batch_size_per_rank), every, loaded.strategy.masters
    )
    if where.samples_per_s:
        sample_s = 1 / where.samples_per_s
        jitter_s = where.jitter * sample_s * batch / ranks
        costs = Costs(sample_s=sample_s, jitter_s=jitter_s, cores=ranks * loaded.ranks.threads)
        out = expand_user(study.out) if study.out else None
        show(costs, work, request, [], out)
        if out is not None:
            with writing(out, after=""):
                write_about(out, [loaded])
        return
    cells = calibration(loaded, samples)
    carry_out(StudyPlan("predict", cells, study), lambda records, path: calibrated(cells, records, path, work, request))


def calibrated(
    cells: "Sequence[Cell]", records: Sequence[dict[str, Any]], path: Path, work: "Work", request: "PredictionRequest"
) -> None:
    """Fits the model to the runs and shows what it says."""
    from unisono.measure.prediction.calibration import calibrate

    costs, checked = calibrate(cells, records, path, work.nbytes)
    show(costs, work, request, checked, path)


def show(
    costs: "Costs", work: "Work", request: "PredictionRequest", checked: Sequence[dict[str, Any]], path: Path | None
) -> None:
    """A table for each network, the check, and words; in files if there is a place."""
    import json
    from dataclasses import asdict

    from unisono.cli.common.study_command import console
    from unisono.measure.prediction.predict import rows_of
    from unisono.report.studies.predict import checks, table, words_of
    from unisono.study.study_directory import writing

    rows = rows_of(costs, work, request)
    terminal = console()
    if checked:
        terminal.print(checks(checked).shown(checked, terminal.width))
    for network in request.networks:
        mine = [row for row in rows if row["network"] == network.name]
        terminal.print(table(mine).shown(mine, terminal.width))
    words = words_of(rows, checked)
    print("\n".join(words))
    if path is not None:
        model = {"costs": asdict(costs), "points": list(checked)}
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            written = table(rows).write(rows, path, "predict")
            write_file(path / "predict.txt", "\n".join(words) + "\n")
            write_file(path / "model.json", json.dumps(model, indent=1) + "\n")
        print(f"Written: {', '.join(one.name for one in written)}, predict.txt, model.json in {path}")
