"""A profile of a recipe on its own ranks: phases add up, ranks are on one clock, weights are those of training."""

import pytest

from unisono.errors import UserError
from unisono.measure.options import ProfileOptions
from unisono.measure.profile.instrument import PHASES
from unisono.measure.profile.study import measure, plan
from unisono.recipe import Recipe

SMALL = Recipe.from_options(
    model="bn-mlp:6", data="synthetic:classes=4,rows=120,features=8", batch_size=24, ranks=2, shards=4
)
LOOK = ProfileOptions(batches=12)


def changed(**values):

    return SMALL.with_options(**values)


@pytest.mark.parametrize("allreduce", ["arena", "ring"])
def test_phases_of_each_rank_add_up_to_its_steps(allreduce):
    record = measure(plan(changed(allreduce=allreduce), LOOK)[0], LOOK)
    assert [one["rank"] for one in record["phases"]] == [0, 1]
    for one in record["phases"]:
        assert sum(one[name] for name in PHASES) == pytest.approx(one["step"])
        assert all(one[name] > 0 for name in ("data", "forward", "backward", "summing", "optimizer"))
    assert {row["calls"] for row in record["modules"]} == {12}
    assert {row["rank"] for row in record["operators"]} == {0, 1}
    assert set(record["overhead"]) == {"phases", "modules", "operators"}
    assert record["others_cores"] is None or record["others_cores"] >= 0


def test_ranks_are_on_one_clock_so_their_steps_overlap():
    record = measure(plan(SMALL, LOOK)[0], LOOK)
    first, second = ([span[1:] for span in rank if span[0] == "step"] for rank in record["spans"])
    assert len(first) == len(second) == 12
    # Both are in the same step at the same time: nobody leaves it before both have come.
    assert all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(first, second, strict=True))


def test_a_batch_that_is_the_whole_epoch_and_a_torch_module():
    recipe = changed(batch_size="full", engine="torch", clip=1.0)
    record = measure(plan(recipe, ProfileOptions(batches=3))[0], ProfileOptions(batches=3))
    assert record["global_batch"] == 120
    assert {row["calls"] for row in record["modules"] if row["phase"] == "forward"} == {6}  # 2 shards a rank
    assert {row["kind"] for row in record["modules"]} >= {"Linear", "BatchNorm1d", "ReLU", "loss"}


def test_activations_are_jobs_over_the_same_data():
    jobs = plan(SMALL, ProfileOptions(activations="tanh,gelu"))
    assert [job.recipe.model.activation for job in jobs] == ["tanh", "gelu"]
    assert jobs[0].dataset is jobs[1].dataset


@pytest.mark.parametrize(
    ("recipe", "options", "told"),
    [
        ({"strategy": "local"}, {}, "--strategy local"),
        ({"strategy": "async"}, {}, "--strategy async"),
        ({"transport": "gloo"}, {}, "--transport gloo"),
        ({"sync_batchnorm": True}, {}, "--sync-batchnorm"),
        ({}, {"batches": 0}, "--batches is 0"),
        ({}, {"top": 0}, "--top is 0"),
        ({}, {"sort": "time"}, "unknown --sort 'time'"),
        ({}, {"activations": "relu,swish"}, "unknown activation 'swish'"),
    ],
)
def test_what_cannot_be_profiled_is_refused(recipe, options, told):
    with pytest.raises(UserError, match="HINT") as found:
        plan(changed(**recipe), ProfileOptions(**options))
    assert told in str(found.value)
