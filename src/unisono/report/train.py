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


def advice(summary: dict[str, Any], cores: int) -> str:
    """What limited the run, and the one thing to try next."""
    spent = {name: summary[f"{name}_s"] for name in ("compute", "data", "update", "wait")}
    limit = max(spent, key=lambda name: spent[name])
    ranks, shards = summary["ranks"], summary["shards"]
    live = min(shards, -(-summary["global_batch"] // -(-summary["global_batch"] // shards)))
    if limit == "wait" and ranks > cores:
        return f"Limited by waiting: {ranks} ranks share {cores} cores. Try --ranks {cores}."
    if limit == "wait" and live % ranks:
        better = max(count for count in range(1, ranks + 1) if live % count == 0)
        return f"Limited by waiting: {live} shards do not divide among {ranks} ranks. Try --ranks {better}."
    if limit == "wait":
        return "Limited by waiting: a step is too short to share. Try a larger --batch-size, or fewer ranks."
    if limit == "compute" and ranks < min(cores, live):
        return f"Limited by computing. Try --ranks {min(cores, live)}: the same bits, sooner."
    if limit == "compute":
        return "Limited by computing, on all cores: this is as fast as it gets here."
    if limit == "update":
        return "Limited by summing and updating: the model is large for its batch. Try a larger --batch-size."
    return "Limited by gathering samples from memory. Try a larger --batch-size."


def verdict(summary: dict[str, Any], path: str, cores: int) -> str:
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
        advice(summary, cores),
        f"weights {summary['weights_sha256'][:16]}...; everything is in {path}",
    ]
    return "\n".join(lines)
