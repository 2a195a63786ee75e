from support.report.study_records import failed, record_of
from unisono.recipe import Recipe
from unisono.report.html.blocks import Text
from unisono.report.html.study_table import split_reasons, table_of
from unisono.report.studies import compare
from unisono.study.cells import cells_of, over

WHY = "--strategy ddp needs torch, which is not installed"


def found() -> list[dict]:
    cells = cells_of(Recipe(), [over("strategy=sync,ddp,local")])
    return compare.rows_of(cells, [record_of(cells[0], 0, 100.0), failed(cells[1], WHY)])


def test_reasons_are_sentences_of_their_own():
    rows = found()
    above, below = split_reasons(compare.words_of(rows), rows)
    assert below == [Text(f"strategy=ddp: {WHY}", "warning"), Text("strategy=local: not run yet", "note")]
    assert above == [Text(line) for line in compare.words_of(rows)[: len(above)]]
    assert len(above) + len(below) == len(compare.words_of(rows))


def test_rows_without_numbers_are_marked_beside_their_names():
    rows = found()
    made = table_of(compare.table(rows, ["strategy"]), rows)
    assert "why not" not in made.head
    assert [row[0] for row in made.rows] == ["sync", "ddp (failed)", "local (not run yet)"]
    assert {len(row) for row in made.rows} == {len(made.head)}


def test_where_all_went_well_nothing_is_below():
    rows = found()[:1]
    assert split_reasons(compare.words_of(rows), rows) == ([Text(line) for line in compare.words_of(rows)], [])
