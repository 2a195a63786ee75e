"""Records of studies: a value that is not what its name says makes a line none."""

import pytest

from unisono.study.record_types import is_record

RECORD = {
    "cell": "ranks=2", "labels": {"ranks": "2"}, "digest": "ab", "repeat": 0, "run": "runs/a-0", "elapsed_s": 1.5,
    "others_cores": None, "status": "finished", "reason": "", "error": "a\nb", "accuracies": [0.5, float("nan")],
    "summary": {"train_s": 1, "train_loss": float("inf"), "machine": {"cores": 2}, "idle_ranks": [], "mine": {}},
}  # fmt: skip


def test_what_studies_write_is_a_record():
    assert is_record(RECORD)


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
