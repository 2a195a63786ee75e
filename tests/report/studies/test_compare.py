import pytest

from support.report.study_records import failed, record_of
from unisono.measure.options import StudyOptions
from unisono.recipe import Recipe
from unisono.report.studies.cell_rows import by_epoch
from unisono.report.studies.compare import rows_of, table, words_of
from unisono.study.cells import cells_of, over
from unisono.study.study import run_order

CELLS = cells_of(Recipe(), [over("strategy=sync,ddp"), over("precision=fp32,bf16")])
OPTIONS = ["strategy", "precision"]
A, B, C, D = CELLS


def runs(cell, *rates: float, **changed) -> list[dict]:
    return [record_of(cell, repeat, rate, **changed) for repeat, rate in enumerate(rates)]


def test_ratios_are_to_the_first_by_rounds():
    rows = rows_of(CELLS, [*runs(A, 100, 50), *runs(B, 200, 110), *runs(C, 90, 55), *runs(D, 80, 40)])
    assert (rows[1]["ratio"], rows[1]["ratio_low"], rows[1]["ratio_high"]) == (pytest.approx(4.4**0.5), 2.0, 2.2)
    words = words_of(rows)
    assert words[0] == (
        "Fastest: strategy=sync precision=bf16, 2.00 to 2.20 times as fast as strategy=sync precision=fp32."
    )
    assert words[1] == (
        "As fast as strategy=sync precision=fp32, as far as these rounds can tell: strategy=ddp precision=fp32."
    )


@pytest.mark.parametrize("repeat", [2, 3, 5, StudyOptions().repeat])
def test_a_machine_that_grows_slower_does_not_decide(repeat):
    cells = cells_of(Recipe(), [over("seed=0,1,2,3,4,5")])
    order = run_order(cells, repeat)
    rows = rows_of(cells, [record_of(turn.cell, turn.repeat, 100 * 0.98**at) for at, turn in enumerate(order)])
    assert [row["ratio"] for row in rows] == pytest.approx([1.0] * 6)
    if repeat == StudyOptions().repeat:  # what is no ratio has no neighbour
        assert [row["train_s"] for row in rows] == pytest.approx([rows[0]["train_s"]] * 6, rel=0.01)


def test_equal_bits_are_called_out():
    rows = rows_of(CELLS, [*runs(A, 100), *runs(B, 90), *runs(C, 80, weights_sha256="cd" * 32), *runs(D, 70)])
    (line,) = [line for line in words_of(rows) if line.startswith("Equal bits")]
    assert f"({'ab' * 8}...)" in line
    assert "strategy=sync precision=fp32; strategy=sync precision=bf16; strategy=ddp precision=bf16." in line
    assert [row["same_bits"] for row in rows] == [True, True, False, True]


def test_runs_that_do_not_repeat_are_called_out():
    loose = [record_of(A, 0, 100.0), record_of(A, 1, 100.0, weights_sha256="cd" * 32)]
    rows = rows_of([A, B], [*loose, *runs(B, 90, 90)])
    assert words_of(rows)[-1] == "Not the same bits in all runs, of the same recipe: strategy=sync precision=fp32."
    assert rows[1]["same_bits"] is False


def test_a_failure_is_a_row_with_its_reason_and_no_end():
    rows = rows_of(CELLS, [*runs(A, 100), failed(B, "no such instructions"), *runs(C, 80)])
    assert words_of(rows)[-2:] == [
        "strategy=sync precision=bf16: no such instructions",
        "strategy=ddp precision=bf16: not run yet",
    ]
    made = table(rows, OPTIONS)
    assert made.markdown(rows).splitlines()[3] == "| sync | bf16 |  |  |  |  |  |  |  |  | no such instructions |"
    assert "Measured once" in "\n".join(words_of(rows))


def lost(cell, repeat):
    return failed(cell, "it took longer than 60 s") | {"repeat": repeat, "exit_code": None}


def test_runs_that_failed_beside_others_are_told_and_the_luck_of_the_rest_wins_nothing():
    lucky = [record_of(B, 0, 400.0), record_of(B, 1, 410.0), lost(B, 2)]
    rows = rows_of([A, B, C], [*runs(A, 100, 101, 102), *lucky, *runs(C, 90, 91, 92)])
    assert words_of(rows)[0] == f"Fastest: {A.name}, the first."
    assert words_of(rows)[-1] == f"{B.name}: 2 of 3 runs; 1 failed: it took longer than 60 s"
    assert [row["failed"] for row in rows] == [0, 1, 0]
    made = table(rows, OPTIONS)
    first, second, _ = made.markdown(rows).splitlines()[2:]
    assert "±" in first
    assert "±" not in second
    assert made.csv(rows).splitlines()[2].count("it took longer than 60 s") == 1


def test_a_first_that_failed_now_and_then_makes_nobody_the_fastest():
    rows = rows_of([A, B], [record_of(A, 0, 100.0), lost(A, 1), lost(A, 2), *runs(B, 200, 200, 200)])
    assert not any("Fastest" in line or "Measured once" in line for line in words_of(rows))
    assert words_of(rows)[-1] == f"{A.name}: 1 of 3 runs; 2 failed: it took longer than 60 s"


def test_without_the_first_the_next_is_the_measure_and_without_any_reasons_are_all_there_is():
    rows = rows_of([A, B], [failed(A, "why"), *runs(B, 100, 100)])
    assert words_of(rows)[0].startswith("Ratios are to strategy=sync precision=bf16: the first combination")
    assert rows[1]["ratio"] == 1.0
    assert words_of(rows_of([A, B], [failed(A, "why")])) == [f"{A.name}: why", f"{B.name}: not run yet"]
    rows = rows_of([A, B, C], [*runs(A, 100), failed(B, "why"), failed(C, "why")])
    assert words_of(rows)[-1] == f"{B.name}; {C.name}: why"


def test_numbers_to_predict_have_losses():
    rows = rows_of([A], runs(A, 100, train_accuracy=None, test_accuracy=None))
    titles = [column.title for column in table(rows, OPTIONS).columns]
    assert titles[2:4] == ["train loss", "test loss"]


def test_accuracies_by_epoch_are_medians_of_the_repeats():
    curves = [[0.5, 0.8, 0.9], [0.6, 0.8, 0.7], [0.4, 0.9]]
    records = [record | {"accuracies": curve} for record, curve in zip(runs(A, 100, 100, 100), curves, strict=True)]
    rows = rows_of([A, B], [*records, *runs(B, 100)])
    assert rows[0]["accuracies"] == [0.5, 0.8]
    assert rows[1]["accuracies"] is None
    made = table(rows, OPTIONS)
    at = [column.title for column in made.columns].index("% by epoch")
    assert [made.texts(row)[at] for row in rows] == ["50.0 80.0", ""]
    assert by_epoch([0.1] * 3 + [0.5] * 9) == "10.0 10.0 10.0 ... 50.0 50.0"


def test_runs_that_are_too_short_are_called_so():
    words = words_of(rows_of([A, B], [*runs(A, 10_000), *runs(B, 500)]))
    (line,) = [line for line in words if line.startswith("Short runs")]
    assert line.startswith(f"Short runs: {A.name} trains for 100 ms only.")
