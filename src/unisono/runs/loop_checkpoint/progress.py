"""Progress: how far the loops of a user's program have come, and what of that a process before this one has done.

The one idea: loops are told apart by their order. A program that is started again enters the same ones in the same
order, so a few numbers say where it was: the batches of each loop over batches, and for each loop over `world.epochs`
the epoch that it is in and how many loops had been entered when that epoch began. There it goes on, as if the epochs
before had been gone through.

    progress.enter(); progress.judge(terms, epoch, step)        # GIVEN, PASSED or LEFT
    for epoch in progress.epochs(5): ...                        # 3, 4
    progress.facts()                                            # for a snapshot

Limits: a snapshot of a program without `world.epochs` does not tell epochs: one loop over batches is taken for one
epoch, and a program that has several is refused.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, final

from unisono.errors import UserError
from unisono.loop.callbacks import GIVEN, LEFT, PASSED
from unisono.loop.shared_model import ModelSharing
from unisono.safe_print import print

_AS_IT_WAS = "go on with the program as it was, or give another directory to begin anew"


@final
class Progress:
    """One rank's; begun: the facts of the snapshot that the program goes on from, empty if it begins."""

    def __init__(self, sharing: ModelSharing, begun: dict[str, Any]) -> None:
        self._sharing, self._begun = sharing, begun
        self._before: list[int] = begun.get("loops", [])
        self.done: int = begun.get("batches", 0)
        self._passed = 0
        self._loops: list[int] = []
        """Batches of each loop over batches so far; the last one may be open."""
        self._first = 0
        """The epoch that the last of them began with."""
        self._last: list[int] = begun.get("last", [])
        self._coming: list[int] = []
        self._epochs: list[dict[str, int]] = []
        """For each loop over `world.epochs` so far: the epoch it is in, whether it is over, and what had been entered
        when that epoch began, or the loop was over."""
        self._catching_up = bool(begun)
        self._guessed = -1
        """Loops over batches when the epoch began whose number was guessed; -1: none was."""
        self._told = False

    def facts(self) -> dict[str, Any]:
        """What a snapshot holds of it. The batch that was judged last is about to be given."""
        return {
            "last": self._last,
            "next": self._coming,
            "loops": list(self._loops),
            "first": self._first,
            "epochs": [] if self._guessed >= 0 else [dict(entry) for entry in self._epochs],
        }

    # -- loops over batches

    def enter(self) -> None:
        if 0 <= self._guessed < len(self._loops):
            raise UserError(
                f"{self._begun['path']} is of a program without world.epochs, and this one has several loops over "
                "batches in an epoch: so nobody knows which epoch it was made in",
                hint="go on with the program as it was, `for epoch in range(...)`, or give another directory",
            )
        self._loops.append(0)
        self._first = self._sharing.epochs

    def judge(self, terms: Sequence[int], epoch: int, step: int) -> int:
        """Loops are left where they were left before: what made the program do so was in a batch that is not given."""
        key, here = [*terms, epoch, step], len(self._loops) - 1
        over = here < len(self._before) - 1  # a loop after this one had been entered
        if over and self._loops[here] == self._before[here]:
            return LEFT
        self._coming = key
        if self._passed == self.done:
            if self._catching_up and "next" in self._begun:
                self._check(key, self._begun["next"], "when the next one was")
            self._catching_up = False
            return GIVEN  # and counted when it has been gone through: a loop may be left before that
        self.count()
        self._passed += 1
        if over and all(entry["over"] for entry in self._epochs):
            self._tell(epoch)
        if self._passed == self.done:
            self._check(key, self._begun["last"], "the last of them")
        return PASSED

    def count(self) -> None:
        """The batch that was judged last has been gone through."""
        self._loops[-1] += 1
        self._last = self._coming

    def _check(self, key: list[int], saved: list[int], which: str) -> None:
        if key != saved:
            raise UserError(
                f"{self._begun['path']} was made after {self.done} batches, {which} batch {saved[-1]} of epoch "
                f"{saved[-2]}; now that is batch {key[-1]} of epoch {key[-2]}"
                + ("" if saved[:-2] == key[:-2] else ", and of other data, size or seed"),
                hint=_AS_IT_WAS,
            )

    def _tell(self, epoch: int) -> None:
        """Once: what follows such a loop may want a batch."""
        if not self._told and self._sharing.member.first:
            text = f"epoch {epoch} is done: its loop gives no batch, and what follows the loop runs again"
            hint = "`for epoch in world.epochs(n)` begins with the epoch that goes on"
            print(f"unisono: {text}\nHINT: {hint}", file=sys.stderr)
        self._told = True

    # -- loops over epochs

    def epochs(self, count: int) -> Iterator[int]:
        """What is left of range(count)."""
        place, start = len(self._epochs), 0
        self._epochs.append({})
        self._note(place, 0, over=False)
        if self._catching_up:
            saved: list[dict[str, int]] = self._begun.get("epochs", [])
            if place < len(saved):
                entry = saved[place]
                self._jump(entry["loops"], entry["begun"])
                self._epochs = [dict(one) for one in saved[: entry["entered"]]]
                if entry["over"]:
                    return
                start = entry["epoch"]
            elif not saved and len(self._loops) < len(self._before):
                self._guessed = len(self._before) - 1
                start = self._guessed - len(self._loops)
                last = self._begun["last"]
                self._jump(self._guessed, self._begun.get("first", last[-2] + (not self._before[-1])))
            if start >= count:
                raise UserError(
                    f"world.epochs({count}), and {self._begun['path']} was made in epoch {start}, from 0",
                    hint=f"give {start + 1} or more, or another directory to begin anew",
                )
        try:
            for epoch in range(start, count):
                if epoch > start:
                    self._guessed = -1  # it had one loop over batches, as was guessed
                self._note(place, epoch, over=False)
                yield epoch
        finally:
            self._guessed = -1
            self._note(place, count, over=True)

    def _note(self, place: int, epoch: int, *, over: bool) -> None:
        entered, loops, begun = len(self._epochs), len(self._loops), self._sharing.epochs
        self._epochs[place] = {"epoch": epoch, "over": over, "entered": entered, "loops": loops, "begun": begun}

    def _jump(self, loops: int, begun: int) -> None:
        """As if so many loops over batches had been gone through, and so many epochs been begun."""
        self._loops = self._before[:loops]
        self._passed = sum(self._loops)
        self._sharing.epochs = max(self._sharing.epochs, begun)
