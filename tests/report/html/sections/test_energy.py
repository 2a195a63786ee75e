"""The section on energy and utilisation: charts of whoever was watched, a table of several runs, nothing of nothing."""

import json

import pytest

import unisono
from support.report.made_run import make
from unisono.report.html.blocks import Lines, Table
from unisono.report.html.document import document
from unisono.report.html.sections.energy import section

HEAD = "s_after_start,what,utilisation,memory_bytes,power_w,temperature_c\n"


def made(path, joules=40.0, lines=""):
    run = make(path)
    summary = json.loads((run / "summary.json").read_text())
    energy = {"energy_j": joules, "energy_source": "estimate", "energy_per_sample_j": 0.5}
    (run / "summary.json").write_text(json.dumps(summary | energy))
    if lines:
        (run / "utilisation.csv").write_text(HEAD + lines)
    return unisono.load(run)


def test_what_each_one_did_is_a_line(tmp_path):
    rows = "".join(f"{2 * n}.0,rank 0,0.9{n},1000,,\n{2 * n}.0,node,1.{n},2000,5{n},\n" for n in range(4))
    run = made(tmp_path / "run", lines=rows)
    use, power = section([run]).blocks
    assert isinstance(use, Lines)
    assert [(one.name, list(one.y)) for one in use.series] == [
        ("node", [1.0, 1.1, 1.2, 1.3]),
        ("rank 0", [0.90, 0.91, 0.92, 0.93]),
    ]
    assert [(one.name, list(one.y)) for one in power.series] == [("node", [50, 51, 52, 53])]
    page = document([run])
    assert "Energy and utilisation" in page
    assert page.count("40.0 J") == 1
    assert run.frame("utilisation").shape == (8, 6)


def test_the_ranks_together_and_the_whole_node_are_two_lines_and_said_to_be(tmp_path):
    def lines(*ranks):
        return "".join(f"{2 * n},{what},0.9,1000,,\n" for n in range(4) for what in (*ranks, "all ranks", "node"))

    (use,) = section([made(tmp_path / "two", lines=lines("rank 0", "rank 1"))]).blocks
    assert [one.name for one in use.series] == ["all ranks", "node", "rank 0", "rank 1"]
    assert use.note == "node: cores in use by any program; ranks: by this run's."
    (use,) = section([made(tmp_path / "one", lines=lines("rank 0"))]).blocks
    assert [one.name for one in use.series] == ["node", "rank 0"]


def test_of_many_lines_the_node_stays_and_what_is_left_out_is_said(tmp_path):
    ranks = [f"rank {rank}" for rank in range(13)]
    rows = "".join(f"{2 * n},{what},0.9,1000,,\n" for n in range(1000) for what in (*ranks, "gpu 0", "node"))
    (use,) = section([made(tmp_path / "run", lines=rows)]).blocks
    assert [one.name for one in use.series] == ["gpu 0", "node", *ranks[:10]]
    shown = len(use.series[0].y)
    assert shown < 1000
    assert use.note == (
        f"3 more are left out. 1,000 points as {shown}: the lowest and the highest of each stretch are kept."
    )


def test_runs_are_compared_in_a_table(tmp_path):
    (table,) = section([made(tmp_path / "one"), made(tmp_path / "two", 18_700)]).blocks
    assert isinstance(table, Table)
    assert table.rows == [["one", "40.0 J", "500 mJ", "estimate"], ["two", "18.7 kJ", "500 mJ", "estimate"]]


def test_of_several_runs_one_whose_energy_is_not_known_says_why(tmp_path):
    make(tmp_path / "two", energy_note="not gathered")
    (table,) = section([made(tmp_path / "one"), unisono.load(tmp_path / "two")]).blocks
    assert table.rows == [["one", "40.0 J", "500 mJ", "estimate"], ["two", "not known", "", "not gathered"]]


@pytest.mark.parametrize(
    "lines", ["1,rank 0\n", "a,b,c,d,e,f\n" * 5, "1,rank 0,x,,,\n2,rank 0,y,,,\n3,rank 0,z,,,\n", "\x00,\n"]
)
def test_odd_lines_cost_no_section(lines, tmp_path):
    run = made(tmp_path / "run", joules="<b>much</b>", lines=lines)
    assert section([run]) is None
    assert "could not be made" not in document([run])
    assert "<b>much" not in document([run])


def test_nothing_is_known_of_an_old_run(tmp_path):
    assert section([unisono.load(make(tmp_path / "run"))]) is None
