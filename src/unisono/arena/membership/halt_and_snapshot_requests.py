"""Requests of the supervisor that all ranks obey at the same round: halt, or copy the state for a snapshot.

The one idea: a request becomes a decision when the first member writes it down *before* it arrives at READY of a round.
All members read the decision after that barrier, so all act at the same point, whenever the request came in.

    requests = Requests(words); requests.ask_to_halt()               # the supervisor
    requests.decide(position, due=False)                             # the first member, before READY
    if requests.halts_after(position): ...                           # every member, after COMMIT

The state is copied in the round after the one that decided it, before its READY: until then no rank changes it. From
that READY on the copy is the supervisor's, until it calls `snapshot_written`. No other copy is decided meanwhile.
"""

from typing import final

from unisono.arena.membership.protocol import REQUESTS, Words

_HALT, _ASKED, _WRITTEN, _HALT_AT, _SNAPSHOT_AT, _SEEN = range(REQUESTS, REQUESTS + 6)
# The first three are the supervisor's, the others the first member's.


@final
class Requests:
    """One process's access to the words."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def ask_to_halt(self) -> None:
        self._words[_HALT] = 1

    @property
    def asked_to_halt(self) -> bool:
        """For ranks that may end a round early."""
        return bool(self._words[_HALT])

    def ask_for_snapshot(self) -> None:
        """Asks for one snapshot."""
        self._words[_ASKED] += 1

    def decide(self, position: int, *, due: bool, halt: bool | None = None) -> None:
        """Decides for round `position`; `due`: the recipe wants a snapshot of the state after this round.

        halt: what several machines have agreed on; a request that came in since then waits for the next round.
        """
        words = self._words
        asked_now = words[_HALT] if halt is None else halt
        if asked_now and not words[_HALT_AT]:
            words[_HALT_AT] = position
        free = words[_WRITTEN] == words[_SNAPSHOT_AT] and words[_SNAPSHOT_AT] < position
        asked = words[_ASKED]
        if free and (due or asked != words[_SEEN]):
            words[_SNAPSHOT_AT] = position
            words[_SEEN] = asked

    def halts_after(self, position: int) -> bool:
        """Whether `position` is the last round."""
        return self._words[_HALT_AT] == position != 0

    def snapshot_after(self, position: int) -> bool:
        """Whether the state after round `position` is to be copied in the next round."""
        return self._words[_SNAPSHOT_AT] == position != self._words[_WRITTEN]

    @property
    def snapshot_at(self) -> int:
        """The last round for which a copy was decided; 0 for none."""
        return self._words[_SNAPSHOT_AT]

    def snapshot_written(self) -> None:
        """The supervisor is done with the copy: another one may be decided."""
        self._words[_WRITTEN] = self._words[_SNAPSHOT_AT]
