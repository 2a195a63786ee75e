"""The cost model against answers in closed form, and constants that are found again in made-up points."""

import math
from dataclasses import replace

import numpy as np
import pytest

from unisono.comm.allreduce import FORMULAS
from unisono.errors import UserError
from unisono.measure.prediction.cost import (
    ALGORITHMS,
    Cluster,
    Costs,
    Network,
    Work,
    all_reduce_s,
    asynchronous,
    last_of,
    local,
    node_step_s,
    parse,
    sync,
)
from unisono.measure.prediction.fit import Point, fitted, not_below_0

NONE = Network("none", math.inf, 0.0)
SLOW = Network("slow", bytes_per_s=1000.0, latency_s=0.01)
WORK = Work(batch=64, shards=8, nbytes=4000, samples=640)
COSTS = Costs(
    call_s=1e-3, shard_s=2e-4, sample_s=5e-5, data_s=1e-5, divided_s=4e-4, update_s=1e-4, crowding=0.1, jitter_s=1e-4,
    cores=4,
)  # fmt: skip
FAST = Network("fast", bytes_per_s=1.0, latency_s=0.0)
"""A second a byte, and nothing else."""
FAR = Network("far", bytes_per_s=1e30, latency_s=1.0)
"""A second a message, and nothing else."""


def test_a_step_on_one_rank_is_the_sum_of_its_parts():
    assert node_step_s(COSTS, WORK, 1) == pytest.approx(1e-3 + 8 * 2e-4 + 64 * 6e-5 + 5e-4)


def test_two_ranks_share_shards_samples_and_the_divided_part_and_crowd_each_other():
    expected = (1e-3 + 4 * 2e-4 + 32 * 5e-5) * 1.1 + 32 * 1e-5 + 1e-4 + 2e-4 + last_of(2, 1e-4)
    assert node_step_s(COSTS, WORK, 2) == pytest.approx(expected)


def test_shards_that_do_not_divide_leave_ranks_idle():
    plain = replace(COSTS, divided_s=0.0, crowding=0.0, jitter_s=0.0, cores=8)
    assert node_step_s(plain, WORK, 5) == node_step_s(plain, WORK, 4)


def test_more_ranks_than_cores_take_turns():
    lone = replace(COSTS, cores=1, jitter_s=0.0, call_s=0.0, update_s=0.0)
    assert node_step_s(lone, WORK, 8) == pytest.approx(node_step_s(lone, WORK, 1), rel=0.01)


def test_the_last_of_many_is_later_the_more_there_are():
    rng = np.random.default_rng(0)
    for count in (2, 16, 1000):
        seen = rng.standard_normal((4000, count)).max(axis=1).mean()
        assert last_of(count, 1.0) == pytest.approx(seen, rel=0.05)
    assert last_of(1, 1.0) == 0.0


def test_without_a_network_and_jitter_nodes_are_as_good_as_ranks():
    steady = replace(COSTS, jitter_s=0.0)
    one = sync(steady, WORK, Cluster(1, 2, NONE))
    four = sync(steady, replace(WORK, batch=256, shards=32), Cluster(4, 2, NONE))
    assert four.samples_per_s == pytest.approx(4 * one.samples_per_s)
    assert (one.algorithm, four.network_share) == ("arena", 0.0)


def test_the_fastest_algorithm_is_taken():
    far = Network("far", 1e12, 1.0)
    thin = Network("thin", 1000.0, 0.0)
    assert sync(COSTS, WORK, Cluster(8, 1, far)).algorithm == "doubling"
    assert sync(COSTS, WORK, Cluster(8, 1, thin)).algorithm in ("ring", "halving")
    assert sync(COSTS, WORK, Cluster(8, 1, far), "naive").step_s > sync(COSTS, WORK, Cluster(8, 1, far)).step_s


def test_local_exchanges_every_so_many_steps():
    cluster = Cluster(4, 2, SLOW)
    seldom, often = local(COSTS, WORK, cluster, 16), local(COSTS, WORK, cluster, 1)
    assert seldom.network_share * seldom.step_s == pytest.approx(often.network_share * often.step_s / 16)
    assert seldom.samples_per_s > sync(COSTS, WORK, cluster).samples_per_s


def test_replicas_compute_and_update_one_after_the_other():
    steady = replace(COSTS, jitter_s=0.0)
    expected = (4 * (1e-3 + 2e-4) + 32 * 5e-5) * 1.1 + 32 * 1e-5 + 4 * 3e-4
    assert local(replace(steady, replica_s=3e-4), WORK, Cluster(1, 2, NONE), 16).step_s == pytest.approx(expected)


def test_masters_are_the_limit_of_many_workers():
    rates = [asynchronous(COSTS, WORK, Cluster(nodes, 1, SLOW), 1) for nodes in (64, 1024)]
    pushes = [rate.samples_per_s / (64 / nodes) for rate, nodes in zip(rates, (64, 1024), strict=True)]
    assert pushes[0] == pytest.approx(pushes[1])
    assert pushes[0] == pytest.approx(1 / (4000 / 1000 + 4e-4))  # each way, at once
    assert asynchronous(COSTS, WORK, Cluster(1, 1, SLOW), 1) is None


def test_ranks_that_share_a_core_pay_for_their_turns():
    usual, turning = replace(COSTS, cores=2), replace(COSTS, cores=2, turn_s=1e-3)
    assert node_step_s(turning, WORK, 2) == node_step_s(usual, WORK, 2)
    assert node_step_s(turning, WORK, 8) == pytest.approx(node_step_s(usual, WORK, 8) + 3e-3)
    twice = replace(WORK, threads=2)  # each of 4 ranks has two threads, and half of a core for each
    assert node_step_s(turning, twice, 4) == pytest.approx(node_step_s(usual, twice, 4) + 3e-3)
    alone = replace(COSTS, crowding=0.0, jitter_s=0.0, cores=8)
    assert node_step_s(replace(alone, cores=2), twice, 4) == pytest.approx(4 * node_step_s(alone, twice, 4))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("more_s", "turn_s"), [([4e-3], 2e-3), ([-4e-3], 0.0), ([2e-3, 4e-3, 20e-3], 2e-3), ([], 0.0)])
def test_a_turn_is_the_median_of_what_ranks_that_share_cores_take_beyond_their_work(threads, more_s, turn_s):
    costs, work = fitted(points(COSTS), cores=4), replace(WORK, threads=threads)
    ranks = 12 // threads  # three on each core: two turns
    step_s = node_step_s(costs, work, ranks)
    shared = [Point("", ranks, work, step_s + late_s, 1.0, 1.0, 1.0, 1.0) for late_s in more_s]
    assert fitted([*points(COSTS), *shared], cores=4).turn_s == pytest.approx(turn_s)


def points(costs: Costs) -> list[Point]:
    made = []
    for ranks, batch, shards in ((1, 64, 8), (1, 128, 8), (1, 64, 4), (2, 64, 8)):
        work = replace(WORK, batch=batch, shards=shards)
        count, samples = shards // ranks, batch / ranks
        compute_s = (costs.call_s + costs.shard_s * count + costs.sample_s * samples) * (
            1 + costs.crowding * (ranks - 1)
        )
        update_s, data_s = costs.update_s + costs.divided_s / ranks, costs.data_s * samples
        wait_s = last_of(ranks, costs.jitter_s)
        total_s = compute_s + update_s + data_s + wait_s
        made.append(Point("", ranks, work, total_s, compute_s, data_s, update_s, wait_s))
    return made


def test_constants_are_found_again():
    found = fitted(points(COSTS), cores=4)
    for name in ("call_s", "shard_s", "sample_s", "data_s", "divided_s", "update_s", "crowding", "jitter_s"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name), rel=1e-6), name


def test_what_replicas_and_turns_cost_is_found_in_runs_that_have_them():
    plain = fitted(points(COSTS), cores=4)
    assert (plain.turn_s, plain.replica_s) == (0.0, pytest.approx(5e-4))
    crowded = node_step_s(COSTS, WORK, 8) + 7e-3
    lone = Cluster(1, 1, NONE)
    replicas = local(replace(COSTS, replica_s=1e-4), WORK, lone, 16).step_s
    more = [
        Point("", 8, WORK, crowded, 1.0, 1.0, 1.0, 1.0),
        Point("", 1, WORK, replicas, 2e-3, 1e-3, 8e-4, 0.0, replicas=True),
    ]
    found = fitted([*points(COSTS), *more], cores=4)
    assert found == replace(plain, turn_s=pytest.approx(7e-3), replica_s=pytest.approx(1e-4))


def test_time_that_no_part_accounts_for_is_a_part_of_the_step():
    slower = [replace(point, step_s=point.step_s + 0.01) for point in points(COSTS)]
    assert node_step_s(fitted(slower, 4), WORK, 4) == pytest.approx(node_step_s(COSTS, WORK, 4) + 0.01)


def test_no_constant_is_below_0():
    assert not_below_0([[1.0, 1.0], [1.0, 2.0]], [2.0, 1.0]) == pytest.approx([1.2, 0.0])
    assert not_below_0([[1.0, 1.0]], [0.0]) == [0.0, 0.0]


def test_a_model_needs_one_rank_and_several():
    with pytest.raises(UserError, match="one rank and on several"):
        fitted([point for point in points(COSTS) if point.ranks == 1], 4)


@pytest.mark.parametrize(
    ("text", "rate", "latency"),
    [("10gbit,50us", 1.25e9, 50e-6), ("100 Gbit/s, 1.5µs", 12.5e9, 1.5e-6), ("1gbit,0ms", 1.25e8, 0.0)],
)
def test_networks_are_read(text, rate, latency):
    found = parse(text)
    assert (found.bytes_per_s, found.latency_s) == (pytest.approx(rate), pytest.approx(latency))


@pytest.mark.parametrize("text", ["", "fast", "10gbit", "10,50us", "0gbit,50us", "1.2.3gbit,1us", "10gbit,-5us"])
def test_what_is_no_network_is_refused(text):
    with pytest.raises(UserError, match="HINT: such as --network 10gbit,50us"):
        parse(text)


@pytest.mark.parametrize("algorithm", ["naive", "ring", "doubling", "halving"])
@pytest.mark.parametrize("nodes", [2, 4, 8, 64])
def test_bytes_are_those_that_bench_counts(algorithm, nodes):
    """The tree's are an average over ranks there; here the busiest one counts."""
    assert all_reduce_s(algorithm, nodes, 1000, FAST) == pytest.approx(FORMULAS[algorithm][1](nodes, 1000))


def test_messages_one_after_the_other():
    found = {name: [all_reduce_s(name, nodes, 1, FAR) for nodes in (2, 8)] for name in ALGORITHMS}
    assert found == {
        "ring": [2, 14], "tree": [2, 6], "doubling": [1, 3], "halving": [2, 6], "naive": [1, 7],
    }  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_node_needs_no_network(algorithm):
    assert all_reduce_s(algorithm, 1, 1e9, FAST) == 0.0


def test_nodes_too_many_for_a_power_of_two_cost_two_messages_more():
    assert all_reduce_s("doubling", 5, 1, FAR) == all_reduce_s("doubling", 4, 1, FAR) + 2
