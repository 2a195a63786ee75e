"""The tables of a run: every line tells its epoch."""

from dataclasses import replace

from unisono.messages.reports import EpochRecord
from unisono.storage.run_tables import TABLES, epoch_of, headers, lines

RANK = {"host": "a", "samples": 5, "compute_s": 2.0, "wait_s": 0.25, "data_s": 1.0, "update_s": 0.5, "last_steps": 1}
RECORD = EpochRecord({"epoch": 12}, 1, [RANK] * 2, [[[0.5, 0.5, 1.0]]] * 2, meetings=1, pushes=[[1, 2], [3, 4]])


def test_every_line_tells_its_epoch_and_headers_tell_none():
    added = lines(RECORD, ["W"], "mark")
    assert set(added) == set(TABLES)
    for text in added.values():
        assert {epoch_of(line) for line in text.splitlines()} == {12}
    assert [epoch_of(text) for text in headers(RECORD, ["W"]).values()] == [None] * 3


def test_a_number_that_is_no_epoch_is_none():
    assert [epoch_of(f'{{"epoch": {digits}') for digits in ("9" * 18, "9" * 19, "9" * 5000)] == [10**18 - 1, None, None]


def test_pushes_are_of_asynchronous_runs_alone():
    plain = replace(RECORD, pushes=[])
    assert set(lines(plain, ["W"], "mark")) == set(TABLES) - {"pushes.csv"}


def test_columns_of_one_strategy_come_after_those_of_all():
    more = replace(RECORD, ranks=[RANK | {"pushed": 3, "exchange_s": 1.0}] * 2)
    header = headers(more, ["W"])["ranks.csv"].strip().split(",")
    assert header[8:] == ["update_s", "last_steps", "pushed", "contribution:W", "norm_share:W", "gradient_mean:W"]
    assert lines(more, ["W"], "mark")["ranks.csv"].splitlines()[0] == "12,0,a,5,2.0,0.75,0.25,1.0,0.5,1,3,0.5,0.5,1.0"
