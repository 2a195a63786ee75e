"""The registry: every strategy declares everything, each refusal is shown once, and declarations are true."""

import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.errors import UserError
from unisono.measure.options import ProfileOptions
from unisono.measure.prediction.cost import Costs, Network, Work
from unisono.measure.prediction.predict import PredictionRequest, rows_of
from unisono.measure.profile.study import _check as check_profile
from unisono.recipe import Recipe
from unisono.runs.run_modes.base import check_nodes
from unisono.runs.run_modes.multi_machine import _check as check_by_hand
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies import registry
from unisono.strategies.registry import ARENA, all_specs, find, get, of, resolve, support_table
from unisono.strategies.spec import StrategySpec, SupervisedHooks, Supports
from unisono.training.job import prepare

LIMITS = Path(__file__).parents[2] / "docs" / "limits.md"
SMALL: dict[str, Any] = {
    "ranks": 2, "model": "mlp:8", "batch_size": 8, "data": "synthetic:classes=4,rows=90,features=8,test_rows=60",
}  # fmt: skip
SPECS = pytest.mark.parametrize("spec", all_specs(), ids=lambda spec: spec.title.strip("`"))
needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")


@pytest.fixture
def no_gpus(monkeypatch):
    monkeypatch.setattr("unisono.strategies.external.spec._gpus", lambda: 0)


def recipe_of(spec: StrategySpec, **options: Any) -> Recipe:
    allreduce = "ring" if spec.title.endswith("ring`") else ARENA
    return Recipe.from_options(**SMALL | {"strategy": spec.name, "allreduce": allreduce} | options)


@SPECS
def test_every_strategy_declares_everything(spec):
    for name in ("name", "title", "supports", "asynchronous", "external", "recipe_shards", "shards_are_replicas"):
        assert getattr(spec, name) is not None
    assert spec.options == () or all(spec.elsewhere)
    assert {type(getattr(spec.supports, row.name)) for row in fields(Supports)} <= {bool, str}
    assert of(recipe_of(spec)) is spec
    assert find(spec.name) is get(spec.name)


def test_options_belong_to_one_strategy():
    owners: dict[str, set[str]] = {}
    for spec in all_specs():
        for name in spec.options:
            owners.setdefault(name, set()).add(spec.name)
    assert owners
    assert all(len(names) == 1 for names in owners.values())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UserError, match="sync, local, async, ddp, accelerate"):
        get("nothing")
    assert find("nothing") is find(None) is find(3) is None


ASYNC = {"strategy": "async", "ranks": 4, "model": "mlp:300"}
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "dpd"}, "did you mean 'ddp'"),
    ({"device": "gpu"}, "there are: cpu, auto, cuda"),
    ({"device": "cuda"}, "--device cuda with --strategy sync(.|\n)*--strategy ddp or --strategy accelerate on GPUs"),
    ({"strategy": "local", "device": "cuda"}, "--device cuda with --strategy local"),
    # Options of `local`.
    ({"strategy": "local", "sync_every": 0}, "--sync-every 0: not a number of steps\nHINT: give 1 or more"),
    ({"strategy": "local", "sync_every": -2}, "--sync-every -2"),
    ({"strategy": "local", "sync_every": "often"}, "--sync-every often"),
    ({"strategy": "local", "local_after": -1}, "--local-after -1 in a run of 20 epochs"),
    (
        {"strategy": "local", "local_after": 20},
        "--local-after 20 in a run of 20 epochs\nHINT: give 0 or more and less than --epochs",
    ),
    ({"sync_every": 16}, "--sync-every 16 with --strategy sync.*\nHINT: use --strategy local, or leave --sync-every"),
    ({"sync_every": 0}, "--sync-every 0 with --strategy sync"),
    ({"strategy": "ddp", "local_after": 2}, "--local-after 2 with --strategy ddp"),
    (ASYNC | {"sync_every": 4}, "--sync-every 4 with --strategy async"),
    # Options of `async`.
    ({"masters": 2}, "--masters 2 with --strategy sync, which is not asynchronous\nHINT: leave it out, or use --str"),
    ({"staleness_rule": "plain"}, "with --strategy sync, which is not asynchronous"),
    ({"max_staleness": "4"}, "with --strategy sync, which is not asynchronous"),
    ({"deal": "dynamic"}, "with --strategy sync, which is not asynchronous"),
    ({"strategy": "ddp", "order": "x"}, "--order x with --strategy ddp, which is not asynchronous"),
    (ASYNC | {"masters": 4}, r"--masters 4 with --ranks 4(.|\n)*give 1 to 3 masters"),
    (ASYNC | {"masters": 1, "ranks": 1}, "give --ranks 2 or more"),
    (ASYNC | {"masters": 12, "ranks": 14, "batch_size": 2}, "parameters can be cut for 7 masters at most"),
    (ASYNC | {"staleness_rule": "save"}, "did you mean 'safe'"),
    (ASYNC | {"deal": "fair"}, "unknown --deal 'fair'"),
    (ASYNC | {"order": "reversed"}, "--order reversed: No such file"),
    (ASYNC | {"max_staleness": "1"}, "give 2 or more, or 1:drop"),
    (ASYNC | {"batch_size_per_rank": 4}, "give --batch-size 4"),
    (ASYNC | {"batch_size": "full"}, "an epoch would be a single push"),
    (ASYNC | {"batch_size": 80}, "2 an epoch: 3 workers would not all have one"),
    (ASYNC | {"allreduce": "ring"}, "gradients are pushed, not summed"),
    (ASYNC | {"optimizer": "lars"}, "--optimizer lars with --strategy async"),
    (ASYNC | {"device": "cuda"}, "--device cuda with --strategy async"),
    (ASYNC | {"sync_batchnorm": True}, "--sync-batchnorm with --strategy async"),
    (ASYNC | {"snapshot_every": "10steps"}, "between epochs"),
    (
        ASYNC | {"slow": "3:2,1:4", "masters": 2},
        r"--slow 3:2,1:4 (.|\n)*rank 1 is a master(.|\n)*give workers: ranks 2 to 3",
    ),
    # Options that those of other libraries do not have.
    ({"strategy": "ddp", "device": "cuda"}, "torch sees no GPU here"),
    ({"strategy": "ddp", "engine": "numpy"}, "--engine numpy with --strategy ddp"),
    ({"strategy": "ddp", "optimizer": "lars"}, "torch has none\nHINT: use momentum"),
    ({"strategy": "ddp", "slow": "1:4"}, "--slow 1:4 with --strategy ddp: its ranks compute and wait at once"),
    ({"strategy": "ddp", "shards": 8}, "give --shards 2, or 0"),
    ({"strategy": "ddp", "allreduce": "ring"}, "torch sums the gradients itself"),
    ({"strategy": "ddp", "snapshot_every": "2epochs"}, "--snapshot-every 2epochs with --strategy ddp"),
    ({"strategy": "ddp", "resume": "runs/one"}, "it has no snapshots"),
    ({"strategy": "ddp", "sync_batchnorm": True}, "--sync-batchnorm with --strategy ddp"),
    ({"strategy": "accelerate", "precision": "fp16", "device": "cpu"}, "would compute in fp32, and say nothing"),
    # Synchronised batch norm, and rounding.
    (
        {"sync_batchnorm": True, "allreduce": "ring"},
        "--sync-batchnorm with --allreduce ring(.|\n)*HINT: leave --allreduce ring out",
    ),
    ({"sync_batchnorm": True, "strategy": "local"}, "--sync-batchnorm with --strategy local"),
    ({"wire": "fp8"}, "unknown --wire 'fp8'"),
    ({"wire": "bf16", "allreduce": "ring"}, "--wire bf16 with --allreduce ring(.|\n)*leave --wire out, or --allreduce"),
    (ASYNC | {"wire": "bf16"}, "--wire bf16 with --strategy async"),
    ({"wire": "bf16", "strategy": "ddp"}, "--wire bf16 with --strategy ddp"),
    ({"allreduce": "rings"}, "did you mean 'ring'"),
]


@pytest.mark.parametrize(("options", "message"), REFUSALS, ids=lambda value: str(value)[:70])
def test_what_cannot_be_is_refused_before_any_process_starts(options, message, no_gpus):
    if "ddp" in options.values() or "accelerate" in options.values():
        pytest.importorskip("torch")
    with pytest.raises(UserError, match=message):
        prepare(Recipe.from_options(**SMALL | options))


TRIED = {
    "numpy": {"engine": "numpy"},
    "torch": {"engine": "torch"},
    "gpus": {"device": "cuda"},
    "sync_batchnorm": {"sync_batchnorm": True, "model": "bn-mlp:8"},
    "wire": {"wire": "bf16"},
    "lars": {"optimizer": "lars"},
    "slow": {"slow": "1:2"},
}


def passes(check: Any, *given: Any) -> bool:
    try:
        check(*given)
    except UserError:
        return False
    return True


@needs_torch
@SPECS
@pytest.mark.parametrize("name", TRIED)
def test_what_is_declared_is_what_is_refused_or_not(spec, name, monkeypatch):
    monkeypatch.setattr("unisono.strategies.external.spec._gpus", lambda: 2)
    monkeypatch.setattr("unisono.strategies.external.spec.find_spec", lambda package: object())
    assert passes(prepare, recipe_of(spec))
    assert passes(prepare, recipe_of(spec, **TRIED[name])) is getattr(spec.supports, name)


@SPECS
def test_what_is_declared_of_machines_snapshots_and_commands(spec):
    supports, recipe = spec.supports, recipe_of(spec)
    assert spec.on_arena is supports.shared_memory is supports.take_over is supports.replacement is supports.snapshots
    assert supports.snapshots_launched is not (spec.external or spec.state_in_parts(1))
    assert supports.snapshots_machines is not (spec.external or spec.state_in_parts(2))
    assert passes(check_by_hand, recipe) is supports.machines_by_hand
    kept = recipe_of(spec, snapshot_every="1epoch")
    assert passes(check_nodes, kept, 2) is not spec.state_in_parts(2)
    assert passes(check_profile, recipe, ProfileOptions()) is supports.profile


@pytest.mark.parametrize(
    "spec", [spec for spec in all_specs() if not spec.external], ids=lambda spec: spec.title.strip("`")
)
def test_strategies_over_a_communicator_keep_what_they_declare(spec):
    job = prepare(recipe_of(spec))

    def keeps(world: unisono.World) -> bool:
        with job.strategy(world.comm, job.model()) as strategy:
            return strategy.snapshot_source is not None

    assert unisono.run(keeps, 2) == [spec.supports.snapshots_launched] * 2


@pytest.mark.parametrize("spec", [spec for spec in all_specs() if spec.on_arena], ids=lambda spec: spec.title)
def test_supervised_runs_have_the_hooks_of_their_strategy(spec):
    hooks = SupervisedRun(prepare(recipe_of(spec)), RunPlaces())._hooks
    assert isinstance(hooks, SupervisedHooks)
    assert hooks.crashes_counted is not spec.asynchronous
    assert (hooks.pieces > 1) is spec.asynchronous  # 12 pushes on two ranks


def test_predictions_are_made_for_those_that_declare_it():
    costs = Costs(1e-3, 1e-4, 1e-5, 1e-6, 1e-4, 1e-4, 1e-4, 0.1, 1e-4, cores=2)
    (_, row) = rows_of(costs, Work(64, 8, 4000, 1000, 1), PredictionRequest([2], 2, [Network("slow", 1e8, 1e-4)]))
    told = {"sync"} | {name.removesuffix("_samples_per_s") for name in row if name.endswith("_samples_per_s")}
    assert told == {spec.name for spec in all_specs() if spec.supports.predict}


def test_a_resolved_recipe_resolves_to_itself(no_gpus):
    for spec in all_specs():
        if not spec.external or find_spec(spec.name.replace("ddp", "torch")):
            resolved = resolve(recipe_of(spec))
            assert resolve(resolved) == resolved


def test_the_table_of_limits_is_that_of_the_registry():
    """Print it again: python -m unisono.strategies.registry."""
    begin, end = "<!-- made by: python -m unisono.strategies.registry -->\n", "<!-- end of what is made -->"
    (found,) = re.findall(f"{re.escape(begin)}(.*?){re.escape(end)}", LIMITS.read_text(), re.DOTALL)
    assert found.strip() == support_table().strip()


def test_the_default_strategy_is_known():
    assert Recipe().strategy.name in registry.TABLE
