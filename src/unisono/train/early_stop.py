"""Early stopping: when the last `patience` evaluations all reached the target.

>>> stop = EarlyStop(target=0.9, patience=2); [stop.reached(accuracy) for accuracy in (0.95, 0.8, 0.9, 0.91)]
[False, False, False, True]

Every rank sees the same accuracies, which are global, so all ranks decide alike.
"""

from typing import final


@final
class EarlyStop:
    """`target` 0 never stops."""

    def __init__(self, target: float, patience: int) -> None:
        self._target, self._patience = target, patience
        self._streak = 0

    def reached(self, accuracy: float) -> bool:
        """Takes the accuracy of one more evaluation; whether to stop now."""
        self._streak = self._streak + 1 if self._target and accuracy >= self._target else 0
        return self._streak >= self._patience
