"""Records of studies, made up: what a run of a cell on some ranks would have left."""

from unisono.study.cells import Cell


def record_of(cell: Cell, repeat: int, rate: float, **changed) -> dict:
    """A finished run of 1000 samples at `rate` samples/s; the parts of its time are those of a rank."""
    train_s = 1000 / rate
    parts = {"compute_s": 0.7 * train_s, "data_s": 0.05 * train_s, "wait_s": 0.1 * train_s, "update_s": 0.15 * train_s}
    summary = {
        "status": "finished", "train_s": train_s, "wall_s": train_s + 1, "samples_per_s": rate, "samples": 1000,
        "train_accuracy": 0.9, "test_accuracy": 0.8, "train_loss": 0.3, "test_loss": 0.4, "energy_j": None,
        "weights_sha256": "ab" * 32, "global_batch": 64, "shards": 8, "steps": 16, "epochs": 1, **parts,
    }  # fmt: skip
    return {
        "cell": cell.name, "labels": dict(cell.labels), "digest": cell.digest, "repeat": repeat, "run": "runs/x",
        "status": "finished", "reason": "", "error": "", "exit_code": 0, "elapsed_s": train_s + 2,
        "summary": summary | changed,
    }  # fmt: skip


def failed(cell: Cell, reason: str) -> dict:
    return record_of(cell, 0, 1.0) | {"status": "failed", "reason": reason, "exit_code": 2, "summary": {}}
