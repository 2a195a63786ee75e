"""Early stopping: when the last `patience` evaluations all reached the target.

>>> [enough(found, target=0.9, patience=2) for found in ([0.95], [0.95, 0.8, 0.9], [0.95, 0.8, 0.9, 0.91])]
[False, False, True]

Every rank sees the same accuracies, which are global, so all ranks decide alike; and so does one that joins later.
"""

from collections.abc import Sequence


def enough(accuracies: Sequence[float], target: float, patience: int) -> bool:
    """`accuracies` of all evaluations so far, in order; `target` 0 never stops."""
    recent = accuracies[-patience:]
    return bool(target) and len(recent) == patience and all(accuracy >= target for accuracy in recent)
