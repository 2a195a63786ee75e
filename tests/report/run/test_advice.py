import pytest

from support.report.run_records import SUMMARY, rank, totals_of
from unisono.report.run.advice import advice, enough_ranks, idle_share, live_shards, shard_cost


def advised(change: dict, cores: int = 2, slow: int | None = None, hosts: int = 1, steps: int = 100) -> str:
    summary = SUMMARY | change
    summary["sync_s"] = summary["wait_s"] + summary["update_s"]
    ranks = [rank(0.0 if r == slow else 2.0, 100 * (r == slow), host=f"h{r % hosts}") for r in range(summary["ranks"])]
    return advice(summary, totals_of(ranks, steps), cores)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "computing, on all cores"),
        ({"ranks": 1}, "Try --ranks 2: the same bits, sooner"),
        ({"ranks": 1, "allreduce": "ring"}, "Try --ranks 2: sooner"),
        ({"ranks": 1, "batch_size_per_rank": 32}, "Try --ranks 2: sooner"),
        ({"ranks": 1, "threads": 2}, "on all cores"),
        ({"shard_price": 1.5}, "Try --shards 2: sooner, with other bits"),
        ({"shard_price": 1.05}, "on all cores"),
        ({"shard_price": 1.5, "shards": 2}, "on all cores"),
        ({"wait_s": 9.0, "ranks": 8}, "8 ranks share 2 cores. Try --ranks 2"),
        ({"wait_s": 9.0, "threads": 2}, "2 ranks x 2 threads share 2 cores. Try --ranks 1"),
        ({"wait_s": 9.0}, "a step is too short"),
        ({"wait_s": 0.6, "update_s": 0.5}, "a step is too short"),  # together more than computing
        ({"update_s": 9.0}, "the model is large for its batch"),
        ({"data_s": 9.0}, "gathering samples"),
    ],
)
def test_advice_names_the_limit(change, told):
    assert told in advised(change)


@pytest.mark.parametrize("change", [{"wait_s": 9.0}, {"update_s": 9.0}, {"data_s": 9.0}])
def test_a_batch_that_is_all_the_data_cannot_be_larger(change):
    assert "larger --batch-size" in advised(change)
    told = advised(change, steps=1)
    assert told.startswith("Limited by ")
    assert "--batch-size" not in told


def test_others_on_the_cores_are_why_ranks_wait():
    assert "other programs use the cores" in advised({"wait_s": 9.0, "others_cores": 1.2})
    assert "a step is too short" in advised({"wait_s": 9.0, "others_cores": 1.2}, cores=8)
    assert "computing, on all cores" in advised({"others_cores": 1.2})


def test_ranks_without_a_shard_are_too_many():
    assert "Try --ranks 4" in advised({"wait_s": 9.0, "ranks": 5}, cores=8)


def test_a_slow_rank_is_looked_at():
    assert "waiting for rank 3. See what else runs on its host, h1" in advised(
        {"wait_s": 9.0, "ranks": 4}, cores=2, slow=3, hosts=2
    )


def test_more_ranks_are_advised_only_if_they_help():
    assert "Try --ranks 4" in advised({"ranks": 2}, cores=6)  # six ranks would be no faster than four
    assert "on all cores" in advised({"ranks": 4}, cores=6)


@pytest.mark.parametrize(("live", "most", "enough"), [(8, 5, 4), (8, 3, 3), (8, 20, 8), (5, 4, 3), (1, 4, 1)])
def test_enough_ranks(live, most, enough):
    assert enough_ranks(live, most) == enough


def test_shards_in_numbers():
    assert live_shards(10, 8) == 5
    assert live_shards(64, 8) == 8
    assert idle_share(8, 4) == 0
    assert idle_share(8, 5) == pytest.approx(0.2)
    assert shard_cost({"shard_price": 1.25}) == pytest.approx(0.2)
    assert shard_cost({"shard_price": 0.9}) == 0.0
    assert shard_cost({}) == 0.0
