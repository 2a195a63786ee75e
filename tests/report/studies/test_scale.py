"""Rows, words and plots of scaling, from runs whose speeds are made up."""

import xml.etree.ElementTree as ET

import pytest

from support.report.study_records import failed, record_of
from unisono.measure.scale_grid import cells_of_grid
from unisono.recipe import Recipe
from unisono.report.studies.scale import rows_of, table
from unisono.report.studies.scale_plot import plot
from unisono.report.studies.scaling_limits import laws_of, words_of


def made(rates: dict[int, list[float]], *, cores: int = 8, weak: bool = False, **changed):
    cells = cells_of_grid(Recipe(), ",".join(f"1x{ranks}" for ranks in rates), weak=weak)
    records = [
        record_of(cell, repeat, rate, **(changed if cell.recipe.ranks.count > 1 else {}))
        for cell in cells
        for repeat, rate in enumerate(rates[cell.recipe.ranks.count])
    ]
    return cells, records, rows_of(cells, records, weak=weak, cores=cores)


def test_speed_ups_are_those_of_rounds():
    _, _, (one, two) = made({1: [100.0, 50.0, 100.0], 2: [190.0, 90.0, 180.0]})
    between = (((1.9 * 1.8) ** 0.5) + 1.8) / 2  # of neighbours that went opposite ways
    assert (two["speed_up"], two["speed_up_low"], two["speed_up_high"]) == (pytest.approx(between), 1.8, 1.9)
    assert (one["speed_up"], one["efficiency"], two["efficiency"]) == (1.0, 1.0, pytest.approx(between / 2))
    assert two["sync_share"] == pytest.approx(0.25)
    assert (two["repeats"], two["same_bits"]) == (3, True)
    _, _, (two, four) = made({2: [100.0], 4: [150.0]})  # without one rank, the smallest world is the measure
    assert (two["efficiency"], four["efficiency"]) == (1.0, 0.75)


def test_laws_knee_limit_and_bits_are_told():
    serial = 0.15
    rates = {n: [x / (serial + (1 - serial) / n) for x in (99.0, 100.0, 101.0)] for n in (1, 2, 4, 8)}
    _, _, rows = made(rates)
    words = words_of(rows)
    assert words[0].startswith("Amdahl: a serial share of 15.0 ± ")
    assert "at most 6.5 to 6.9 times as fast" in words[0]
    assert "beyond 7 to 8 ranks" in words[0]
    assert words[1].startswith("Gustafson: ")
    assert words[2].startswith("Knee: 1x4. The step to 1x8 ")
    assert words[3].startswith("What limits 1x8 (efficiency 49 %): ")
    assert words[4] == f"Bits: one weights_sha256 in all 12 runs, {'ab' * 8}..."
    _, _, rows = made({1: [100.0], 2: [190.0]}, weights_sha256="cd" * 32)
    assert words_of(rows)[-1] == "Bits: the weights of 1x2 are not those of 1x1."


@pytest.mark.parametrize("rates", [{1: [100.0], 2: [180.0]}, {1: [97.0, 103.0, 100.0], 2: [200.0, 192.0, 198.0]}])
def test_a_limit_is_told_only_if_the_interval_has_one(rates):
    _, _, rows = made(rates)
    told = words_of(rows)[0]
    assert "no limit can be told" in told
    assert "at most" not in told


def test_how_busy_the_node_was_is_a_share_of_its_cores():
    cells, records, _ = made({1: [100.0, 100.0], 2: [190.0, 190.0]}, cores=4)
    busy = [record | {"node_cores": cores} for record, cores in zip(records, (1.0, 0.8, 2.0, 2.0), strict=True)]
    rows = rows_of(cells, busy, weak=False, cores=4)
    assert [row["utilisation"] for row in rows] == [0.225, 0.5]
    made_table = table(rows)
    at = [column.title for column in made_table.columns].index("util. %")
    assert [made_table.texts(row)[at] for row in rows] == ["22", "50"]
    elsewhere = [record | {"summary": record["summary"] | {"machine": {"cores": 2}}} for record in busy]
    assert [row["utilisation"] for row in rows_of(cells, elsewhere, weak=False, cores=4)] == [0.45, 1.0]
    assert "util. %" not in [column.title for column in table(rows_of(cells, records, weak=False, cores=4)).columns]


@pytest.mark.parametrize(("source", "title"), [("estimate", "energy J, est."), ("rapl", "energy J")])
def test_an_estimate_of_energy_is_called_one(source, title):
    cells = cells_of_grid(Recipe(), "1x1", weak=False)
    records = [record_of(cells[0], repeat, 100.0, energy_j=5.0, energy_source=source) for repeat in range(2)]
    rows = rows_of(cells, records, weak=False, cores=2)
    assert rows[0]["energy_source"] == source
    assert title in [column.title for column in table(rows).columns]


def test_runs_that_are_too_short_are_called_so():
    _, _, rows = made({1: [2000.0], 2: [4000.0]}, epochs=3)
    (line,) = [line for line in words_of(rows) if line.startswith("Short runs")]
    assert line.startswith("Short runs: 1x2 trains for 250 ms only.")
    assert "--epochs 24 " in line
    _, _, rows = made({1: [500.0], 2: [990.0]})
    assert not any(line.startswith("Short runs") for line in words_of(rows))


def test_the_largest_loss_is_the_limit():
    _, _, rows = made({1: [100.0], 2: [120.0]}, wait_s=5.0, compute_s=3.5)
    assert "goes into waiting" in words_of(rows)[-2]
    _, _, rows = made({1: [100.0], 2: [120.0]}, wait_s=0.1, compute_s=6.5)
    assert "goes into computing" in words_of(rows)[-2]


def test_a_knee_that_is_not_one_in_every_round_is_not_told_as_one():
    _, _, rows = made({1: [100.0, 100.0, 100.0], 2: [140.0, 130.0, 190.0]})
    (line,) = [line for line in words_of(rows) if line.startswith("Knee")]
    assert line == "Knee: perhaps 1x1; the runs of 1x2 differ too much to tell (1.30 to 1.90 times as fast as 1x1)."


def test_little_lost_is_said():
    _, _, rows = made({1: [100.0], 2: [196.0]})
    assert any("Little is lost on 1x2: each rank is worth 98 % of a lone one" in line for line in words_of(rows))
    assert any("Knee: none up to 1x2" in line for line in words_of(rows))


def test_more_ranks_than_cores_are_no_part_of_the_fits():
    _, _, rows = made({1: [100.0], 2: [180.0], 4: [120.0]}, cores=2)
    assert {law.sizes for law in laws_of(rows)} == {2}
    words = "\n".join(words_of(rows))
    assert "more ranks than cores: 1x4" in words
    assert "no law can be seen to hold" in words
    assert "What limits 1x2" not in words  # 90 % is good
    assert "with more ranks than cores." in words


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        (
            {1: [100.0], 2: [40.0]},
            "slower here: 1x2 is 0.40 times as fast as 1x1. No law of scaling is fitted to that.",
        ),
        ({1: [100.0], 2: [3.0], 4: [0.001]}, "slower here: 1x4 is 0.00 times as fast as 1x1."),  # no line has a time
        ({1: [100.0], 2: [100.0]}, "no faster here: 1x2 is 1.00 times as fast as 1x1."),
    ],
)
def test_slower_with_more_ranks_is_no_serial_share_of_370_percent(rates, told):
    _, _, rows = made(rates)
    words = words_of(rows)
    assert words[0].startswith(f"More ranks were {told}")
    assert laws_of(rows) == []
    assert not any(line.startswith(("Amdahl", "Gustafson")) for line in words)


def test_the_plot_has_no_law_where_none_is_fitted(tmp_path):
    for name, rate in (("slower", 40.0), ("faster", 180.0)):
        plot(made({1: [100.0], 2: [rate]})[2], tmp_path / f"{name}.svg")
    assert "serial" not in (tmp_path / "slower.svg").read_text()
    assert "serial" in (tmp_path / "faster.svg").read_text()


def test_weak_scaling_has_no_amdahl_and_no_equal_bits():
    _, _, rows = made({1: [100.0], 2: [190.0]}, weak=True)
    assert [law.name for law in laws_of(rows)] == ["Gustafson"]
    assert not any(line.startswith("Bits") for line in words_of(rows))


def test_a_fall_of_accuracy_is_said_and_in_weak_scaling_what_may_help():
    _, _, rows = made({1: [100.0], 2: [190.0]}, weak=True, test_accuracy=0.7, global_batch=128)
    assert "same_bits" not in rows[0]
    assert words_of(rows)[-1] == (
        "Accuracy falls from 80.00 % on 1x1 to 70.00 % on 1x2, where a batch is 128: "
        "--scale-lr linear --warmup-epochs 1 may help."
    )
    _, _, rows = made({1: [100.0], 2: [190.0]}, test_accuracy=0.799)
    assert not any("Accuracy" in line for line in words_of(rows))


def test_a_cell_that_failed_is_a_row_with_its_reason():
    cells, records, _ = made({1: [100.0], 2: [190.0]})
    rows = rows_of(cells, [records[0], failed(cells[1], "no core")], weak=False, cores=2)
    assert rows[1]["reason"] == "no core"
    assert "why not" in table(rows).markdown(rows)
    waiting = rows_of(cells, records[:1], weak=False, cores=8)
    assert words_of(waiting) == ["1x2: not run yet"]
    assert words_of(rows) == ["1x2: no core", "One number of ranks was measured: nothing can be said of scaling."]
    lost = rows_of(cells, [failed(cell, "no core") for cell in cells], weak=False, cores=2)
    assert words_of(lost) == ["1x1: no core", "1x2: no core"]
    alone = rows_of(cells[:1], records[:1], weak=False, cores=2)
    assert words_of(alone) == ["One number of ranks is no scaling: give a --grid with several."]
    assert "not run yet" in table(rows).markdown(rows_of(cells, records[:1], weak=False, cores=2))


def test_columns_without_anything_are_left_out():
    _, _, rows = made({1: [100.0], 2: [190.0]})
    assert [column.title for column in table(rows).columns] == [
        "grid", "train %", "test %", "time s", "in all s", "samples/s", "speed-up", "eff. %", "sync %", "bits",
    ]  # fmt: skip
    _, _, rows = made({1: [100.0], 2: [190.0]}, energy_j=5.0)
    assert "energy J" in [column.title for column in table(rows).columns]


def test_the_plot_is_an_svg_and_the_same_for_the_same_rows(tmp_path):
    _, _, rows = made({1: [100.0, 101.0], 2: [180.0, 190.0], 4: [300.0, 310.0]})
    plot(rows, tmp_path / "a.svg")
    plot(rows, tmp_path / "b.svg")
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    plot([], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
