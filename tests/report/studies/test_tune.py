"""The table of a tuning: the best trial of each setting, the one that was found, why others could not be tried."""

import io

from rich.console import Console

from unisono.report.studies.tune import rows_of, table, words_of


def record(digest, speed=None, reason="", **more):
    found = {"samples_per_s": speed, "joules_per_sample": 0.001, "energy_source": "estimate", "memory_bytes": 1 << 20}
    found |= {"shards": 8, "global_batch": 64}
    labels = {"ranks": digest[0], "threads": "1"}
    status = {"status": "failed" if reason else "finished", "reason": reason}
    return {"digest": digest, "labels": labels, **status, "what": "trial", **({} if reason else found), **more}


RECORDS = [record("1a", 100.0), record("2b", 150.0), record("4c", reason="too large"), record("2b", 180.0)]


def test_a_row_is_the_best_of_its_trials():
    rows = rows_of(RECORDS)
    assert [(row["ranks"], row.get("samples_per_s"), row["trials"]) for row in rows] == [
        ("1", 100.0, 1),
        ("2", 180.0, 2),
        ("4", None, 0),
    ]


def test_what_was_found_is_marked_and_told():
    rows = rows_of(RECORDS)
    console = Console(file=io.StringIO(), width=120)
    console.print(table(rows, "2b").shown(rows))
    (line,) = [line for line in console.file.getvalue().splitlines() if "*" in line]
    assert line.split()[:6] == ["*", "2", "1", "8", "64", "180"]
    words = words_of(rows, "2b", "throughput", complete=False)
    assert words[0] == (
        "* 2 ranks x 1 thread, 8 shards, batch 64: 180 samples/s, the best for throughput. The slowest has 100."
    )
    assert "--seconds" in words[1]
    assert words[2] == "4 ranks x 1 thread: too large"
    assert "1.0 mJ a sample (estimate)" in words_of(rows, "2b", "energy", complete=True)[1]
    assert words_of(rows, "", "energy", complete=True) == ["4 ranks x 1 thread: too large"]


def test_the_time_to_an_accuracy_has_a_column():
    trained = [record("2b", reason="no time", train_s=None), record("2b", 0.0, train_s=12.0)]
    rows = rows_of([*RECORDS, *(one | {"what": "training"} for one in trained)])
    assert [column.name for column in table(rows, "2b").columns].count("train_s") == 1
    assert rows[1]["train_s"] == 12.0
    assert rows[1]["samples_per_s"] == 180.0
    assert rows[1]["reason"] == ""  # it was tried again
    assert words_of(rows, "2b", "throughput", complete=True)[0].endswith(
        "180 samples/s, the soonest at the accuracy, in 12.0 s."
    )


def test_one_setting_alone_is_no_choice():
    words = words_of(rows_of([record("1a", 100.0)]), "1a", "throughput", complete=True)
    assert words == [
        "Nothing was compared: 1 rank x 1 thread, 8 shards, batch 64 is the only setting that was measured, at 100 "
        "samples/s. Several --ranks, --threads, --shards or --batch-sizes make a choice."
    ]
    one_left = words_of(rows_of([record("1a", 100.0), record("4c", reason="too large")]), "1a", "energy", complete=True)
    assert one_left[0].endswith("measured, at 100 samples/s.")
    assert one_left[-1] == "4 ranks x 1 thread: too large"


def test_time_that_ran_out_is_not_put_down_to_options():
    (row,) = rows_of([record("1a", 100.0)])
    assert words_of([row | {"candidates": 6}], "1a", "throughput", complete=False) == [
        "Time ran out (--seconds): 1 of 6 settings was tried. More --seconds go on from here.",
        "Nothing was compared: 1 rank x 1 thread, 8 shards, batch 64 is the only setting that was measured, at 100 "
        "samples/s.",
    ]
    rows = [row | {"candidates": 6} for row in rows_of(RECORDS)]
    assert words_of(rows, "2b", "throughput", complete=False) == [
        "Time ran out (--seconds): 3 of 6 settings were tried. More --seconds go on from here.",
        "* 2 ranks x 1 thread, 8 shards, batch 64: 180 samples/s, the best of these for throughput. The slowest has "
        "100.",
        "4 ranks x 1 thread: too large",
    ]
