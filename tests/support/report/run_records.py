"""Made-up records and summaries of runs, of the form that ranks report."""

from unisono.messages.rank_reports import EpochRecord
from unisono.report.run.aggregate import RunTotals

SUMMARY = {
    "compute_s": 1.0, "data_s": 0.1, "update_s": 0.2, "wait_s": 0.3, "sync_s": 0.5, "ranks": 2, "shards": 8,
    "global_batch": 64, "threads": 1, "allreduce": "arena", "batch_size_per_rank": 0, "shard_price": None,
    "stopped_early": "", "test_loss": 0.5, "test_accuracy": 0.9, "train_loss": 0.25, "train_accuracy": 0.75,
    "train_s": 2.0, "wall_s": 3.0, "samples_per_s": 1000.0, "first_sync_s": 0.001, "weights_sha256": "ab" * 32,
    "epochs": 3, "samples": 2000,
}  # fmt: skip


def rank(wait_s: float = 0.1, last_steps: int = 0, **changes) -> dict:
    found = {"host": "a", "samples": 10, "data_s": 0.25, "compute_s": 1.0, "wait_s": wait_s, "update_s": 0.5}
    return found | {"last_steps": last_steps} | changes


def record(ranks: list[dict], shares: list[list[float]] | None = None, steps: int = 100, **metrics) -> EpochRecord:
    """`shares`: the contribution of each rank to each parameter; equal ones to a single parameter if left out."""
    shares = shares or [[1 / len(ranks)]] * len(ranks)
    numbers = {"epoch": 1, "epoch_s": 0.5, "total_s": 0.75, "samples_per_s": 10.0, "lr": 0.1, "train_loss": 1.0}
    return EpochRecord(
        metrics=numbers | {"train_accuracy": 0.0} | metrics,
        steps=steps,
        ranks=ranks,
        shares=[[[value, 0.5, -1.0] for value in row] for row in shares],
        meetings=steps,
    )


def totals_of(ranks: list[dict], steps: int = 100) -> RunTotals:
    """After one epoch."""
    totals = RunTotals([1], [1 / len(ranks)] * len(ranks))
    totals.add(record(ranks, steps=steps))
    return totals
