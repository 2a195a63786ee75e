"""Requests of the supervisor that all ranks obey at the same round: stop here, copy everything for a snapshot.

The one idea: a request becomes a decision when the first member writes it down *before* it arrives at READY of a round;
everybody reads it after that meeting, so everybody acts at the same point, however the request came in.

    requests = Requests(words); requests.ask_to_halt()               # the supervisor
    requests.settle(position, due=False)                             # the first member, before READY
    if requests.halts_after(position): ...                           # everybody, after COMMIT

A *spare* copy is made in the round after the one that decided it, before its READY: until then nobody changes what is
copied. It is the supervisor's from that READY until it says `written`; meanwhile no other copy is decided.
"""

from typing import final

from unisono.arena.membership.protocol import REQUESTS, Words

_HALT, _ASKED, _WRITTEN, _HALT_AT, _SPARE_AT, _SEEN = range(REQUESTS, REQUESTS + 6)
# The first three are the supervisor's, the others the first member's.


@final
class Requests:
    """One process's hold on the words."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def ask_to_halt(self) -> None:
        self._words[_HALT] = 1

    @property
    def asked_to_halt(self) -> bool:
        """For those who may end a round before its time."""
        return bool(self._words[_HALT])

    def ask_for_spare(self) -> None:
        """Once: asked for again after the next one."""
        self._words[_ASKED] += 1

    def settle(self, position: int, *, due: bool, halt: bool | None = None) -> None:
        """Decides for round `position`; `due`: the recipe wants a spare copy of what the round leaves.

        halt: what machines have agreed on, where there are several: a request that came in since waits for the next.
        """
        words = self._words
        asked_now = words[_HALT] if halt is None else halt
        if asked_now and not words[_HALT_AT]:
            words[_HALT_AT] = position
        free = words[_WRITTEN] == words[_SPARE_AT] and words[_SPARE_AT] < position
        asked = words[_ASKED]
        if free and (due or asked != words[_SEEN]):
            words[_SPARE_AT] = position
            words[_SEEN] = asked

    def halts_after(self, position: int) -> bool:
        """Whether `position` is the last round."""
        return self._words[_HALT_AT] == position != 0

    def spare_after(self, position: int) -> bool:
        """Whether what `position` left is to be copied in the round after it."""
        return self._words[_SPARE_AT] == position != self._words[_WRITTEN]

    @property
    def spare_at(self) -> int:
        """The last round of which a copy was decided; 0 for none."""
        return self._words[_SPARE_AT]

    def written(self) -> None:
        """The supervisor is done with the spare copy: there may be another."""
        self._words[_WRITTEN] = self._words[_SPARE_AT]
