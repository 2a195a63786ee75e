"""ReplicaState: the optimizer's vectors of each replica of `local`, each there twice, so that nothing is ever taken
back.

The one idea: who walks for a replica reads its old vectors and writes the new ones beside them, with the number of the
round on top. The newest before a round are what the round starts from, however often it is begun, by whomever; the
newest of a finished round are what a snapshot of it holds. Which ones that is needs no decision by anybody.

    states = ReplicaState.alone(replicas=8, count=1, length=4096)
    vectors = states.begin(replica, position); ...; states.end(replica, position)

A vector that is written here is read by others only after the members have met, or not at all.

Limits: twice the memory.
"""

from typing import Self, final

import numpy as np

from unisono import aligned


@final
class ReplicaState:
    """`vectors`: (2, replicas, count, length); `labels`: (2, replicas) int64, both 0 at the start."""

    def __init__(self, vectors: np.ndarray, labels: np.ndarray) -> None:
        self._vectors, self._labels = vectors, labels

    @classmethod
    def alone(cls, replicas: int, count: int, length: int) -> Self:
        """In memory of this process, which the replicas that it never walks for do not take up."""
        return cls(aligned.zeros((2, replicas, count, length)), np.zeros((2, replicas), np.int64))

    def begin(self, replica: int, position: int) -> list[np.ndarray]:
        """(length,) each: vectors to be changed in round `position`, with what the rounds before it left."""
        old = self._newest(replica, position - 1)
        new: np.ndarray = self._vectors[1 - old, replica]
        new[...] = self._vectors[old, replica]
        return list(new)

    def end(self, replica: int, position: int) -> None:
        """They are what round `position` leaves, if it is ever finished."""
        self._labels[1 - self._newest(replica, position - 1), replica] = position

    def at(self, position: int) -> list[np.ndarray]:
        """What round `position` left, replica by replica; it is finished, and no later one is."""
        return [
            vector
            for replica in range(self._labels.shape[1])
            for vector in self._vectors[self._newest(replica, position), replica]
        ]

    def _newest(self, replica: int, limit: int) -> int:
        """Which of the two holds the newest that is not newer than round `limit`."""
        first, second = self._labels[:, replica].tolist()
        return int(second <= limit and (second > first or first > limit))
