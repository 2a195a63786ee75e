"""Records of a profile, made up: 10 batches in 10 seconds, 2 of them forward, 3 backward."""

from typing import Any


def row(module: str, kind: str, phase: str = "forward", self_s: float = 1.0, memory: int | None = None, **more) -> dict:
    """What a module or an operator took in 10 calls."""
    costs = {"self_s": self_s, "total_s": self_s, "average_s": self_s / 10, "median_s": self_s / 10, "calls": 10}
    held = {"memory_bytes": memory, "self_memory_bytes": memory}
    return {"rank": 0, "module": module, "kind": kind, "phase": phase, **costs, **held, **more}


def record(**changed) -> dict[str, Any]:
    """Of 2 ranks, the second of which is waited for."""
    made: dict[str, Any] = {
        "ranks": 2, "batches": 10, "global_batch": 64, "shards": 2, "step_s": 1.0, "activation": "relu",
        "engine": "numpy", "overhead": {"phases": 0.01, "modules": 0.03}, "forward_s": 0.001,
        "modules_forward_s": 0.00102,
        "phases": [
            {"rank": rank, "data": 1.0, "forward": 2.0, "backward": 3.0, "waiting": wait, "summing": 1.0,
             "optimizer": 1.0, "other": 2.0 - wait, "step": 10.0}
            for rank, wait in ((0, 2.0), (1, 0.0))
        ],
        "modules": [
            row("0", "Linear", self_s=0.3, memory=1024),
            row("1", "ReLU", self_s=0.1, memory=2048),
            row("2", "Linear", self_s=0.5, memory=512),
            row("1", "ReLU", "backward", self_s=0.1, memory=0),
            row("1", "ReLU", self_s=7.0, memory=0) | {"rank": 1},
        ],
        "operators": [row("0", "Linear", self_s=s, operator=f"op{s}", shapes="4x2") for s in (1, 2, 3)],
        "spans": [[["step", 0.0, 1.0]], [["step", 0.0, 1.0]]],
    }  # fmt: skip
    return made | changed
