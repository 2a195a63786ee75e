"""What machines are called."""

import pytest

from unisono.strategies.machines.topology import MachineName


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (MachineName(0, "n0", "10.0.0.1", [0]), "node 0 (n0, 10.0.0.1, rank 0)"),
        (MachineName(12, "n12", "fd00::a:1:2:1", [12, 13]), "node 12 (n12, fd00::a:1:2:1, ranks 12, 13)"),
        (MachineName(1, "n1", "", [1]), "node 1 (n1, rank 1)"),
        (MachineName(2, "n2", "10.0.0.3"), "node 2 (n2, 10.0.0.3)"),
    ],
)
def test_a_name_holds_what_is_known(name, text):
    assert str(name) == text
