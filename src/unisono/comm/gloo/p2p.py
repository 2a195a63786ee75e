"""TaggedMessages: point-to-point messages of a gloo communicator: send, receive, probe, and the exchange of rows.

`frames.py` defines how a message is packed and received; this file decides when to send, and what to wait for.

The one idea: only gloo works in the background. Each call takes in what has landed, and a call that must wait does so
inside gloo, which notices at once if the other side is gone.

    messages = TaggedMessages(wire, timeout_s)
    messages.send(x, dest=1, tag=0, echo=False).wait()

Limits: after 64 short messages that a receiver did not take, sending waits for it; long messages always wait. In
`exchange` every rank writes to every other: fine for tens of ranks, not for thousands. Polling `test` or `probe`
without a pause takes the processor from gloo's threads; both yield when they find nothing.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import final

import numpy as np

from unisono.comm.base import ANY, Array, Envelope, Request, matches, wrong_length
from unisono.comm.collective_check import Row, late_ranks_error
from unisono.comm.gloo.frames import (
    FRAME_SLOT,
    ROOM,
    FrameInbox,
    IncomingMessage,
    Transfer,
    Wire,
    data_slot,
    echo_slot,
    pack_leave,
    pack_long,
    pack_row,
    pack_short,
)
from unisono.errors import CommError, CommTimeout

_UNTAKEN = 64
_SLOTS = 2**29


@final
class TaggedMessages:
    """One rank's messages. Arrays are uint8 and flat."""

    def __init__(self, wire: Wire, timeout_s: float) -> None:
        self._wire = wire
        self.timeout_s = timeout_s
        self._boxes = {peer: FrameInbox(wire, peer) for peer in range(wire.size) if peer != wire.rank}
        self._leaving: dict[int, deque[Transfer]] = {peer: deque() for peer in self._boxes}
        self._echoes: deque[_Echo] = deque()
        self._slot = 0
        self._next = 0

    def send(self, data: Array, dest: int, tag: int, *, echo: bool) -> Request:
        """Starts sending. Without `echo` the request's `test` cannot tell when a long message is done; `wait` can."""
        if data.size <= ROOM:
            self._leave(pack_short(data, tag), dest, FRAME_SLOT)
            return _DONE
        self._slot = slot = self._slot % _SLOTS + 1
        while self._echoes and self._echoes[0].landed():
            self._echoes.popleft().finish(self.deadline())
        answer = _Echo(self._wire, dest, slot) if echo else None
        if answer is not None:
            self._echoes.append(answer)
        self._leave(pack_long(data, tag, slot, echo=echo), dest, FRAME_SLOT)
        return _Sending(self._wire.send(data, dest, data_slot(slot)), answer, self.deadline)

    def receive(self, data: Array, source: int, tag: int) -> Request:
        """Starts receiving."""
        box = self._boxes[source]
        receiving = _Receiving(self, box, data, tag, self._wire.rank)
        box.want(receiving)
        return receiving

    def probe(self, source: int, tag: int) -> Envelope | None:
        sources = list(self._boxes) if source == ANY else [source]
        # Starts after the source found last, so that a busy one cannot hide the others.
        for step in range(len(sources)):
            box = self._boxes[sources[(self._next + step) % len(sources)]]
            box.look(self.deadline())
            for letter in box.letters:
                if matches(tag, letter.tag):
                    self._next = (self._next + step + 1) % len(sources)
                    return Envelope(letter.source, letter.tag, letter.nbytes)
        os.sched_yield()
        return None

    def exchange(self, what: str, mine: Row) -> list[Row]:
        """The rows of all ranks; whose row has not come when time is up is missing."""
        deadline = self.deadline()
        frame = pack_row(mine)
        leaving = [self._wire.send(frame, peer, FRAME_SLOT) for peer in self._boxes]
        try:
            for box in self._boxes.values():
                while not box.rows:
                    box.take(deadline)
            for transfer in leaving:
                transfer.wait(deadline)
        except CommTimeout:
            missing = [peer for peer, box in self._boxes.items() if not box.has_row()]
            raise late_ranks_error(self._wire.rank, what, self.timeout_s, missing) from None
        except CommError as error:
            gone = [peer for peer, box in self._boxes.items() if not box.has_row()]
            who = f"rank {', '.join(map(str, gone))}" if gone else "a rank"
            raise CommError(
                f"the connection broke on entering {what}; {who} had not arrived",
                hint="it ended, or gave up waiting: see what it says itself",
                rank=self._wire.rank,
            ) from error
        finally:
            leaving.clear()  # an error that somebody keeps holds what is here, beyond the wire's end
        rows = {peer: box.rows.popleft() for peer, box in self._boxes.items()}
        rows[self._wire.rank] = mine
        return [rows[rank] for rank in range(self._wire.size)]

    def answer(self, letter: IncomingMessage) -> None:
        """Tells the sender that its long message has come."""
        self._leave(np.ones(1, np.uint8), letter.source, echo_slot(letter.slot))

    def announce_failure(self, words: Array, patience_s: float) -> None:
        """Tells everybody who is still there."""
        for peer, queue in self._leaving.items():
            queue.append(self._wire.send(pack_leave(words), peer, FRAME_SLOT))
        self._flush(patience_s)

    def failure_notices(self) -> list[bytes]:
        """Of those who took leave; also after a connection broke, for what came before that is here."""
        for box in self._boxes.values():
            with suppress(CommError):
                box.look(self.deadline())
        return [box.failure_notices for box in self._boxes.values() if box.failure_notices]

    def close(self, patience_s: float) -> None:
        """Waits until short messages have left, lest they get lost with the wire, and lets go of it."""
        self._flush(patience_s)
        for box in self._boxes.values():
            box.close()
        self._boxes.clear()
        self._echoes.clear()

    def _flush(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        for queue in self._leaving.values():
            try:
                while queue:
                    queue.popleft().wait(deadline)
            except CommError:
                queue.clear()  # nobody is left to read them

    def deadline(self) -> float:
        """When a wait that starts now has to end."""
        return time.monotonic() + self.timeout_s

    def _leave(self, data: Array, dest: int, slot: int) -> None:
        queue = self._leaving[dest]
        queue.append(self._wire.send(data, dest, slot))
        if len(queue) > _UNTAKEN:
            queue.popleft().wait(self.deadline())


@final
class _Receiving(Request):
    def __init__(self, post: TaggedMessages, box: FrameInbox, data: Array, tag: int, rank: int) -> None:
        self.tag = tag
        self._post, self._box, self._data, self._rank = post, box, data, rank
        self._letter: IncomingMessage | None = None
        self._done = False

    def claim(self, letter: IncomingMessage) -> None:
        """Takes the message, even one that does not fit: its sender shall not wait for ever."""
        self._letter = letter
        letter.open(self._data if letter.nbytes == self._data.size else np.empty(letter.nbytes, np.uint8))

    def test(self) -> bool:
        if self._letter is None:
            self._box.look(self._post.deadline())
            self._box.let_pass()
        if self._letter is None or not self._letter.landed():
            os.sched_yield()
            return False
        self._finish(self._letter, self._post.deadline())
        return True

    def wait(self) -> None:
        deadline = self._post.deadline()
        while self._letter is None:
            self._box.let_pass()
            self._box.take(deadline)
        self._finish(self._letter, deadline)

    def _finish(self, letter: IncomingMessage, deadline: float) -> None:
        if self._done:
            return
        letter.finish(deadline)
        if letter.echo:
            self._post.answer(letter)
        if letter.nbytes != self._data.size:
            raise wrong_length(self._rank, letter.source, letter.tag, letter.nbytes, self._data.size)
        if letter.buffer is not None and letter.buffer is not self._data:
            self._data[:] = letter.buffer
        self._done = True


@final
class _Echo:
    """The place for the receiver's word that a long message has come; the wire fills it without our help."""

    def __init__(self, wire: Wire, dest: int, slot: int) -> None:
        self._word = np.zeros(1, np.uint8)
        self._transfer = wire.receive(self._word, dest, echo_slot(slot))

    def landed(self) -> bool:
        return bool(self._word[0])

    def finish(self, deadline: float) -> None:
        self._transfer.wait(deadline)


@final
class _Sending(Request):
    """A long message on its way."""

    def __init__(self, transfer: Transfer, echo: _Echo | None, deadline: Callable[[], float]) -> None:
        self._transfer, self._echo, self._deadline = transfer, echo, deadline
        self._done = False

    def test(self) -> bool:
        if self._done:
            return True
        if self._echo is None or not self._echo.landed():
            os.sched_yield()
            return False
        self.wait()
        return True

    def wait(self) -> None:
        self._transfer.wait(self._deadline())
        self._done = True


@final
class _Sent(Request):
    """A short message: its data were copied, so the array is free at once."""

    def test(self) -> bool:
        return True

    def wait(self) -> None:
        pass


_DONE = _Sent()
