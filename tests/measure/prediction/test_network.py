import pytest

from unisono.comm.allreduce import FORMULAS
from unisono.errors import UserError
from unisono.measure.prediction.network import ALGORITHMS, Network, all_reduce_s, parse

FAST = Network("fast", bytes_per_s=1.0, latency_s=0.0)
"""A second a byte, and nothing else."""
FAR = Network("far", bytes_per_s=1e30, latency_s=1.0)
"""A second a message, and nothing else."""


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
