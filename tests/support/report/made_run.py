"""Made-up run directories, of any length, written by the code that writes real ones.

python tests/support/report/made_run.py DIRECTORY 10000 16       # 10,000 epochs of one step on 16 ranks, some losses
"""

import math
import sys
from pathlib import Path

from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.storage.rundir import RunDirectory

PARAMETERS = ["0.W", "0.b", "2.W", "2.b"]
SPIKE = 7.5
"""The loss of one epoch among thousands, which no report may lose."""


def summary_of(epochs: int, ranks: int) -> dict:
    times = {"compute_s": 1.0, "data_s": 0.1, "wait_s": 0.2, "update_s": 0.1, "sync_s": 0.3}
    scores = {"train_loss": 0.1, "train_accuracy": 0.99, "test_loss": 0.2, "test_accuracy": 0.9721}
    return {
        "status": "finished", "ranks": ranks, "nodes": 1, "shards": ranks, "threads": 1, "strategy": "sync",
        "allreduce": "arena", "transport": "shm", "engine": "numpy", "precision": "fp32", "model": "mlp:64",
        "data": "digits", "global_batch": 64, "batch_size_per_rank": 0, "version": "0.1.0", "takeovers": 2,
        "restarts": 2, "resumed_from": None, "energy_j": None, "energy_source": None, "shard_price": None,
        "machine": {"host": "here", "cpu": "a processor", "cores": ranks, "memory_bytes": 1 << 34}, "wall_s": 12.0,
        "train_s": 10.0, "samples_per_s": 64.0 * epochs / 10, "first_sync_s": 0.001, "peak_memory_bytes": 50 << 20,
        "weights_sha256": "ab" * 32, "stopped_early": "", "epochs": epochs, "steps": epochs, "samples": 64 * epochs,
        **times, **scores,
    }  # fmt: skip


def record_of(epoch: int, epochs: int, ranks: int) -> EpochRecord:
    loss = SPIKE if epoch == epochs // 3 else 2.3 * math.exp(-4 * epoch / epochs) + 0.05 * math.sin(epoch)
    metrics = {
        "epoch": epoch, "epoch_s": 0.001, "total_s": 0.0012, "samples_per_s": 64000.0 + 500 * math.sin(epoch / 9),
        "lr": 0.01 * (1 - epoch / (epochs + 1)), "train_loss": loss, "train_accuracy": 1 - loss / 10,
        "test_loss": loss + 0.1, "test_accuracy": 0.98 - loss / 10,
    }  # fmt: skip
    rows, shares = [], []
    for rank in range(ranks):
        wait_s = 1e-4 * (1 + math.sin(epoch / 7 + rank))
        rows.append(
            {
                "host": f"node{rank // 8}", "samples": 64 // ranks, "compute_s": 8e-4 - wait_s, "wait_s": wait_s,
                "data_s": 5e-5, "update_s": 1e-4, "last_steps": int(epoch % ranks == rank),
            }
        )  # fmt: skip
        share = (1 + 0.5 * math.sin(epoch / 5 + 2 * rank)) / ranks
        shares.append([[share, share, 0.01]] * len(PARAMETERS))
    return EpochRecord(metrics, 1, rows, shares, meetings=1)


def events_of(epochs: int) -> list[dict]:
    here = {"reached": "COMMIT", "ranks": 3, "s": 0.002}
    first, second = 2 * (epochs // 4) + 1, 2 * (epochs // 2) + 1  # two rounds an epoch
    stalled = "did not move for 60 s (--stall-timeout) and was ended"
    return [
        {"kind": "death", "rank": 1, "cause": "was killed (SIGKILL)", "position": first, "s_after_start": 3.0, **here},
        {"kind": "join", "rank": 1, "position": first + 4, "s_after_start": 3.1, **here},
        {"kind": "death", "rank": 0, "cause": stalled, "position": second, "s_after_start": 6.0, **here},
        {"kind": "newcomer", "rank": 0, "cause": "came too late", "again": True, "s_after_start": 6.5},
        {"kind": "snapshot", "position": second + 2, "path": "snapshots/1", "s_after_start": 7.0},
    ]


def make(path: Path, epochs: int = 8, ranks: int = 4, **summary: object) -> Path:
    """A finished run in `path`, which is not there yet."""
    recipe = Recipe.from_options(epochs=epochs, ranks=ranks, shards=ranks, out=str(path))
    with RunDirectory.make(str(path), recipe) as directory:
        for epoch in range(1, epochs + 1):
            directory.add(record_of(epoch, epochs, ranks), PARAMETERS)
        for event in events_of(epochs):
            directory.add_event(event)
        directory.finish(summary_of(epochs, ranks) | summary)
    return path


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
