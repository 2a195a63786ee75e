"""Energy in words."""

import pytest

from unisono.report.run.energy import energy_lines, readable_j


@pytest.mark.parametrize(
    ("joules", "text"),
    [(18_700, "18.7 kJ"), (20_076, "20.1 kJ"), (0.000121, "121 uJ"), (3.25e6, "3.2 MJ"), (0, "0 J"), (1e-12, "0.0 nJ")],
)
def test_joules_are_readable(joules, text):
    assert readable_j(joules) == text


def test_an_estimate_says_so_and_counters_say_that_they_are_of_whole_nodes():
    (line,) = energy_lines({"energy_j": 40.0, "energy_source": "estimate", "energy_note": "5 s x 8 W"})
    assert line == "Energy: 40.0 J (estimate: 5 s x 8 W)."
    found = {"energy_j": 360.0, "energy_source": "rapl", "energy_per_sample_j": 0.5, "energy_idle_j": 80.0}
    (line,) = energy_lines(found | {"energy_note": ""})
    assert line == (
        "Energy: 360 J, 500 mJ a sample, of which 80.0 J would have been used by an idle machine (rapl: whole nodes)."
    )


def test_energy_that_is_not_known_is_said_with_the_reason():
    note = "this machine shows no energy counters"
    found = {"energy_j": None, "energy_source": "none", "energy_note": note}
    assert energy_lines(found) == [f"Energy: not known ({note})."]


def test_ranks_that_did_nothing_are_named():
    assert energy_lines({"idle_ranks": [2]}) == ["Rank 2 did nothing: never as much as 5 % of a core was used."]
    assert energy_lines({"idle_ranks": [1, 2]})[0].startswith("Ranks 1, 2 did nothing")


@pytest.mark.parametrize("summary", [{}, {"energy_j": None}, {"energy_j": "much", "idle_ranks": "all"}])
def test_nothing_is_said_of_what_is_not_known(summary):
    assert energy_lines(summary) == []


def test_a_part_of_a_node_is_not_told_as_the_whole():
    note = "only 1 of 2 counters of the processors may be read"
    assert energy_lines({"energy_j": 360.0, "energy_source": "rapl", "energy_note": note}) == [
        f"Energy: 360 J (rapl: {note})."
    ]
