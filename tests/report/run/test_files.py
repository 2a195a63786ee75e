"""Files as they are: whole, cut short, missing, or not what their names say."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unisono.report.run import files as reading
from unisono.report.run.files import columns_of, read_json, read_records, read_rows, read_table, read_toml


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_line_that_is_cut_short_is_left_out_and_named(tmp_path):
    problems = []
    path = written(tmp_path / "metrics.jsonl", '{"epoch": 1}\n{"epoch": 2}\n{"epo')
    assert read_rows(path, problems) == [{"epoch": 1}, {"epoch": 2}]
    assert problems == ["metrics.jsonl: the last line is cut short and left out"]


def test_a_line_in_the_middle_that_is_no_record_is_named_by_its_number(tmp_path):
    problems = []
    path = written(tmp_path / "events.jsonl", '{"a": 1}\n[2]\n\n{"a": "\\u2028"}\n')
    assert read_rows(path, problems) == [{"a": 1}, {"a": "\u2028"}]
    assert problems == ["events.jsonl: line 2 is no record and left out"]


def test_a_table_has_typed_columns_and_names_lines_that_are_cut_short(tmp_path):
    problems = []
    path = written(tmp_path / "ranks.csv", 'epoch,host,wait_s\n1,"a,b",0.5\n2,c,nan\n3,d\n4,e,0.1')
    found = read_table(path, problems)
    assert (found["epoch"].dtype, found["wait_s"].dtype, found["host"].dtype) == (np.int64, np.float64, object)
    assert found["host"].tolist() == ["a,b", "c"]
    assert problems == ["ranks.csv: 2 of 4 lines are cut short and left out"]


@pytest.mark.parametrize(
    ("read", "empty"), [(read_json, {}), (read_toml, {}), (read_rows, []), (read_records, []), (read_table, {})]
)
def test_a_missing_file_is_empty_and_a_directory_is_named(read, empty, tmp_path):
    problems = []
    assert read(tmp_path / "nothing", problems) == empty
    assert problems == []
    assert read(tmp_path, problems) == empty
    assert problems == [f"{tmp_path.name}: is a directory"]


def test_links_and_pipes_are_not_read(tmp_path):
    written(tmp_path / "credentials.toml", 'token = "mine"\n')
    (tmp_path / "recipe.toml").symlink_to(tmp_path / "credentials.toml")
    os.mkfifo(tmp_path / "summary.json")  # reading it as a file would wait for a writer
    problems = []
    assert read_toml(tmp_path / "recipe.toml", problems) == {}
    assert read_json(tmp_path / "summary.json", problems) == {}
    assert problems == [
        "recipe.toml: is a link, which is not followed", "summary.json: is not a regular file",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{", "[1]", "nan", '{"a": ' * 100_000, "9" * 5000])
def test_what_is_no_object_is_named(text, tmp_path):
    problems = []
    assert read_json(written(tmp_path / "summary.json", text), problems) == {}
    assert len(problems) == 1
    assert problems[0].startswith("summary.json")


def test_columns_hold_nan_where_a_record_lacks_a_number_and_keep_what_is_none():
    found = columns_of([{"a": 1, "b": None, "c": "x"}, {"a": 2.5, "d": [1, 2]}])
    assert found["a"].tolist() == [1, 2.5]
    assert np.isnan(found["b"]).all()
    assert found["c"].tolist() == ["x", None]
    assert found["d"].tolist() == [None, [1, 2]]
    assert columns_of([{"a": 10**400}])["a"].dtype == object
    assert columns_of([{"a": True}])["a"].dtype == object


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=200))
def test_no_content_raises(content, tmp_path):
    for read in (read_json, read_toml, read_rows, read_records, read_table):
        read(written(tmp_path / "file", content), [])


def test_of_a_huge_file_the_middle_is_left_out_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 40)
    lines = [f'{{"epoch": {epoch}}}' for epoch in range(1, 10)]
    path = written(tmp_path / "metrics.jsonl", "\n".join(lines) + "\n")
    problems = []
    assert read_rows(path, problems) == [{"epoch": 1}, {"epoch": 9}]
    assert problems == ["metrics.jsonl has 0 MiB: its middle is left out"]
