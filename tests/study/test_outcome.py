"""What a run left for a study: scores by epoch, cores in use; nothing of files that are damaged or not there."""

import json
import os

from unisono.study.outcome import outcome_of
from unisono.study.process import read_summary

USED = """s_after_start,what,utilisation,memory_bytes,power_w,temperature_c
0.25,rank 0,0.9,1,,
0.25,all ranks,1.5,2,,
0.25,node,1.9,2,,
"""


def metrics(folder, *epochs):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))


def test_the_best_part_is_scored_epoch_by_epoch(tmp_path):
    metrics(tmp_path, {"train_accuracy": 0.5, "test_accuracy": 0.4}, {"train_accuracy": 0.7, "test_accuracy": 0.6})
    assert outcome_of(tmp_path) == {"accuracies": [0.4, 0.6], "scored": "test"}


def test_a_part_that_was_not_scored_in_every_epoch_is_passed_over(tmp_path):
    metrics(tmp_path, {"train_accuracy": 0.5}, {"train_accuracy": 0.7, "test_accuracy": 0.6})
    assert outcome_of(tmp_path) == {"accuracies": [0.5, 0.7], "scored": "train"}


def test_cores_are_those_that_the_ranks_used(tmp_path):
    (tmp_path / "utilisation.csv").write_text(f"{USED}2.25,all ranks,0.5,2,,\n")
    assert outcome_of(tmp_path) == {"node_cores": 1.0}


def test_what_is_missing_or_damaged_says_nothing(tmp_path):
    assert outcome_of(tmp_path) == {}
    (tmp_path / "metrics.jsonl").write_text('{"train_accuracy": 0.5}\n{"train_')
    (tmp_path / "utilisation.csv").write_text(f"{USED}2.25,all ranks,much,2,,\n")
    assert outcome_of(tmp_path) == {}
    metrics(tmp_path, {"train_accuracy": None, "train_loss": 0.3})
    assert outcome_of(tmp_path) == {}


def test_pipes_say_nothing(tmp_path):
    for name in ("metrics.jsonl", "utilisation.csv", "summary.json"):
        os.mkfifo(tmp_path / name)  # reading one would wait for a writer
    assert outcome_of(tmp_path) == {}
    assert read_summary(tmp_path) == {}
