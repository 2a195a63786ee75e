"""Records of studies: a value that is not what its name says makes a line none."""

import pytest

from support.cli.forked_command import forked
from support.cli.train_command import summary_of
from unisono.study.record_check import is_record, lacking

RECORD = {
    "cell": "ranks=2", "labels": {"ranks": "2"}, "digest": "ab", "repeat": 0, "run": "runs/a-0", "elapsed_s": 1.5,
    "others_cores": None, "status": "finished", "reason": "", "error": "a\nb", "accuracies": [0.5, float("nan")],
    "summary": {"train_s": 1, "train_loss": float("inf"), "machine": {"cores": 2}, "idle_ranks": [], "mine": {}},
}  # fmt: skip


def test_what_studies_write_is_a_record():
    assert is_record(RECORD)


@pytest.mark.parametrize("strategy", ["sync", "local", "async"])
def test_the_summary_of_each_strategy_is_part_of_a_record(strategy, tmp_path):
    recipe = ["--model", "mlp:3", "--epochs", "1", "--ranks", "2", "--strategy", strategy]
    assert forked("train", *recipe, "--out", "run", cwd=tmp_path).returncode == 0
    assert is_record(RECORD | {"summary": summary_of(tmp_path / "run")})


@pytest.mark.parametrize(
    "changed",
    [
        {"cell": 7}, {"digest": []}, {"repeat": [1]}, {"repeat": 0.5}, {"repeat": True}, {"run": "/etc"},
        {"run": "runs/../../x"}, {"run": 3}, {"labels": []}, {"labels": {"ranks": 2}}, {"elapsed_s": "1"},
        {"status": {}}, {"accuracies": ["a"]}, {"accuracies": 3}, {"summary": [1]}, {"summary": {"train_s": "x"}},
        {"summary": {"test_accuracy": {}}}, {"summary": {"machine": 0.5}}, {"summary": {"machine": {"cores": []}}},
        {"summary": {"samples_per_s": 10**400}}, {"digest": "\ud800"},
        {"samples_per_s": None}, {"summary": {"train_s": None}},
    ],
)  # fmt: skip
def test_a_value_that_is_not_what_its_name_says(changed):
    assert not is_record(RECORD | changed)


FINISHED = {
    "cell": "ranks=3", "labels": {"ranks": "3"}, "digest": "ab", "status": "finished", "reason": "", "elapsed_s": 1,
    "exit_code": 0,
}  # fmt: skip
SUMMARY = {"train_s": 1, "wall_s": 2, "samples_per_s": 7, "weights_sha256": None}
RUN = {"repeat": -1, "run": "runs/a", "summary": SUMMARY}
TRIAL = {"what": "trial", "seconds": 1.5, "samples_per_s": 7, "shards": 8, "global_batch": 24, "memory_bytes": 13,
         "energy_source": "none", "joules_per_sample": None}  # fmt: skip
TRAINING = {"what": "training", "train_s": None}


@pytest.mark.parametrize(
    ("kind", "more"), [("scale", RUN), ("compare", RUN), ("predict", RUN), ("tune", TRIAL), ("tune", TRAINING)]
)
def test_everything_that_is_used_is_needed(kind, more):
    whole = FINISHED | more
    assert lacking(whole, kind) == ""
    for name in whole:
        found = lacking({key: value for key, value in whole.items() if key != name}, kind)
        assert found.partition(".")[0] == name or name == "status" == found, (name, found)
    for name in more.get("summary", ()):
        less = {key: value for key, value in more["summary"].items() if key != name}
        assert lacking(whole | {"summary": less}, kind) == f"summary.{name}"


def test_what_failed_has_less():
    failed = FINISHED | {"status": "failed", "exit_code": None}
    assert lacking(failed | {"repeat": 0, "run": "r", "summary": {}}, "scale") == ""
    assert lacking(failed | {"what": "trial", "seconds": 1.5}, "tune") == ""


@pytest.mark.parametrize("labels", [{}, {"ranks": "0"}, {"ranks": "x"}, {"ranks": "3", "batch_size": "all"}])
def test_trials_are_compared_by_numbers(labels):
    assert lacking(FINISHED | TRIAL | {"labels": labels}, "tune").startswith("labels")
