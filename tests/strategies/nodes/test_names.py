"""Which machine it was, told from what a lost connection says."""

import pytest

from unisono.strategies.nodes.names import name_of, told_of

NAMES = [name_of(node, f"n{node}", f"10.0.0.{node + 1}", [node]) for node in range(12)] + [
    name_of(12, "n12", "fd00::a:1:2:1", [12, 13]),
    name_of(13, "n13", "fd00::a:1:2:10", [14]),
]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("rank 5: all_gather failed: 10.0.0.1 is gone", [0]),
        ("10.0.0.11 does not answer any more", [10]),
        ("10.0.0.2 and 10.0.0.12 are gone", [1, 11]),
        ("[fd00::a:1:2:1]:4711 is gone", [12]),
        ("fd00::a:1:2:10 is gone", [13]),
        ("10.0.0.99 is gone", []),
        ("the other side is gone", []),
    ],
)
def test_an_address_names_the_machine_that_has_it_and_no_other(text, nodes):
    assert told_of(text, NAMES) == [NAMES[node] for node in nodes]
