import pytest

from unisono.report.train import advice, epoch_line, verdict

SUMMARY = {
    "compute_s": 1.0, "data_s": 0.1, "update_s": 0.2, "wait_s": 0.3, "ranks": 2, "shards": 8, "global_batch": 64,
    "stopped_early": "", "test_loss": 0.5, "test_accuracy": 0.9, "train_s": 2.0, "samples_per_s": 1000.0,
    "first_sync_s": 0.001, "weights_sha256": "ab" * 32, "epochs": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "on all cores"),
        ({"ranks": 1}, "Try --ranks 2"),
        ({"wait_s": 9.0, "ranks": 8}, "8 ranks share 2 cores. Try --ranks 2"),
        ({"wait_s": 9.0}, "a step is too short"),
        ({"wait_s": 9.0, "shards": 5, "global_batch": 5}, "5 shards do not divide among 2 ranks. Try --ranks 1"),
        ({"update_s": 9.0}, "the model is large for its batch"),
        ({"data_s": 9.0}, "gathering samples"),
    ],
)
def test_advice_names_the_limit(change, told):
    assert told in advice(SUMMARY | change, cores=2)


def test_the_verdict_tells_the_outcome():
    told = verdict(SUMMARY | {"stopped_early": "test accuracy 0.9 reached 0.9"}, "runs/x", cores=2)
    assert "Stopped early after epoch 3" in told
    assert "test accuracy 90.00 %" in told
    assert "runs/x" in told


def test_an_epoch_without_evaluation_has_no_test_score():
    metrics = {"epoch": 1, "epoch_s": 0.5, "samples_per_s": 10.0, "train_loss": 1.0, "train_accuracy": 0.0}
    assert epoch_line(metrics, 3) == "epoch 1/3  0.50 s  10 samples/s  train loss 1.0000"
