"""What `unisono train` says: the opening, a line an epoch, lines of ranks, the verdict. Text only."""

from typing import Any

from unisono.train.job import Job


def opening(job: Job, transport: str, cores: int) -> str:
    """What will be trained, by whom, and what to know about it."""
    recipe, plan = job.recipe, job.plan
    shared = recipe.allreduce == "arena"
    bits = f"same bits on 1-{recipe.shards} ranks" if shared else "other bits on other numbers of ranks"
    lines = [
        f"unisono train: {recipe.model} on {recipe.data}, {plan.samples} samples; NumPy engine, {transport} "
        f"{recipe.allreduce}, {recipe.ranks} ranks x {recipe.threads} threads on {cores} cores",
        f"{recipe.shards} shards: {bits}; global batch {plan.global_batch}, {plan.steps_per_epoch} steps an epoch",
    ]
    if recipe.batch_size_per_rank and recipe.ranks > 1 and recipe.scale_lr == "none":
        lines.append("Note: the global batch grows with the ranks and so does the result; --scale-lr linear may help.")
    if recipe.shards % recipe.ranks:
        lines.append(f"Note: {recipe.shards} shards do not divide among {recipe.ranks} ranks: some will wait.")
    return "\n".join(lines)


def epoch_line(metrics: dict[str, Any], epochs: int) -> str:
    """One epoch."""
    told = f"epoch {metrics['epoch']}/{epochs}  {metrics['epoch_s']:.2f} s  {metrics['samples_per_s']:,.0f} samples/s"
    for part in ("train", "validation", "test"):
        if f"{part}_loss" in metrics:
            told += f"  {part} loss {metrics[f'{part}_loss']:.4f}"
            if metrics[f"{part}_accuracy"]:
                told += f" accuracy {metrics[f'{part}_accuracy']:.4f}"
    return told


def rank_lines(record: dict[str, Any], parameters: list[str]) -> str:
    """What each rank did in an epoch, in their order."""
    lines = []
    for rank, (times, shares) in enumerate(zip(record["ranks"], record["shares"], strict=True)):
        told = [f"Epoch {record['metrics']['epoch']}, rank {rank}:"]
        for name, (contribution, _, mean) in zip(parameters, shares, strict=True):
            told.append(f"mean grad {name} {mean:.6f}, {name} contribution {100 * contribution:.2f} %,")
        lines.append(" ".join(told) + f" sync time {times[2] + times[3]:.6f} s")
    return "\n".join(lines)


def verdict(summary: dict[str, Any], path: str) -> str:
    """The outcome, where the time went, and where everything is."""
    spent = {name: summary[f"{name}_s"] for name in ("compute", "data", "update", "wait")}
    total = sum(spent.values()) or 1.0
    shares = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in spent.items())
    lines = []
    if summary["stopped_early"]:
        lines.append(f"Stopped early after epoch {summary['epochs']}: {summary['stopped_early']}.")
    score = f"test loss {summary['test_loss']:.4f}" if summary["test_loss"] is not None else "no test data"
    if summary["test_accuracy"]:
        score = f"test accuracy {100 * summary['test_accuracy']:.2f} %, {score}"
    lines += [
        f"{score}; {summary['train_s']:.2f} s of training, {summary['samples_per_s']:,.0f} samples/s.",
        f"Rank 0 spent its time on: {shares}; the first synchronisation took {1000 * summary['first_sync_s']:.1f} ms.",
        f"weights {summary['weights_sha256'][:16]}...; everything is in {path}",
    ]
    return "\n".join(lines)
