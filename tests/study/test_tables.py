import csv
import json

from rich.console import Console

from unisono.study.tables import NOT_YET, Column, Table, escaped, range_of

TABLE = Table("Times", [Column("way", "way", left=True), Column("train_s", "time", lambda s: f"{s:.1f} s")])
ROWS = [{"way": "a|b", "train_s": 1.25, "samples": [1, 2]}, {"way": "50 %_x", "reason": "why"}]


def test_markdown_keeps_bars_apart():
    assert TABLE.markdown(ROWS).splitlines() == [
        "| way | time |",
        "| :--- | ---: |",
        "| a\\|b | 1.2 s |",
        "| 50 %_x |  |",
    ]


def test_latex_escapes_what_it_would_read():
    assert TABLE.latex(ROWS).splitlines()[4:6] == [r"a|b & 1.2 s \\", r"50 \%\_x &  \\"]
    assert escaped("\\{}~") == r"\textbackslash{}\{\}\textasciitilde{}"


def test_files_for_programs_have_values(tmp_path):
    written = TABLE.write(ROWS, tmp_path, "times")
    assert [path.name for path in written] == ["times.csv", "times.json", "times.md", "times.tex"]
    assert json.loads((tmp_path / "times.json").read_text()) == ROWS
    rows = list(csv.DictReader((tmp_path / "times.csv").read_text().splitlines()))
    assert rows == [{"way": "a|b", "train_s": "1.25", "reason": ""}, {"way": "50 %_x", "train_s": "", "reason": "why"}]


def test_a_terminal_shows_texts():
    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(TABLE.shown([*ROWS, {"way": "c", "reason": NOT_YET}]))
    console.file.close()
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["a|b", "1.2", "s"] in lines
    assert ["50", "%_x", "failed"] in lines
    assert ["c", "not", "yet"] in lines


def test_minor_columns_give_way_on_a_narrow_terminal():
    columns = [
        Column("way", "way", left=True),
        Column("a", "a", minor=True),
        Column("b", "b", minor=True),
        Column("c", "c"),
    ]
    rows = [{"way": "x" * 10, "a": "1" * 10, "b": "2" * 10, "c": "3" * 10, "reason": "why"}]
    heads = {width: [str(c.header) for c in Table("", columns).shown(rows, width).columns] for width in (80, 40, 30, 9)}
    assert Table("", columns).shown(rows, 30).caption == "in the files, no room here: a, b"
    assert Table("", columns).shown(rows, 80).caption is None
    assert heads == {80: ["way", "a", "b", "c"], 40: ["way", "a", "c"], 30: ["way", "c"], 9: ["way", "c"]}


def test_ranges_without_a_range_are_numbers():
    assert range_of(1.5, 1.5, 1.5) == "1.50"
    assert range_of(2000.0, 1900.0, 2100.5, 0) == "2,000 ±5%"
    column = Column("x", "x", ranged=1)
    assert column.text({"x": 1.0, "x_low": 0.5, "x_high": 2.0}) == "1.0 ±75%"
    assert column.text({}) == ""
