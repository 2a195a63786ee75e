"""Frames: the format in which tagged messages travel over gloo, and the inbox that receives them.

`p2p.py` builds on this file: it sends, gives requests to wait for, and exchanges rows. gloo, below it,
is in `process_group.py`.

gloo moves arrays in the background, but it ends the process if a message is longer than the array that receives it, it
cannot say whether a message has arrived, and it has neither a probe nor an order among tags. Frames add all that
without a thread:
- each message starts with a frame of 2 KiB: tag, length, and the data themselves if they are short. Longer data follow
  on a slot of their own, once the receiver has given them a buffer;
- a few receives for frames are always posted for every source, so short messages leave at once;
- the last word of a frame is a stamp: a frame has landed when its stamp is in memory. Likewise the frame of a long
  message holds its last 8 bytes, and the receiver looks whether they are there. This is only a *hint*; gloo's own wait
  follows, so a wrong guess costs time, never data.

    box = FrameInbox(wire, source=1); box.look(deadline); box.letters
"""

from collections import deque
from typing import Protocol, final

import numpy as np

from unisono.comm.base import Array
from unisono.comm.collective_check import ROW_WORDS, Row
from unisono.errors import CommError

_WORDS = 256
_TAG, _NBYTES, _SLOT, _ECHO, _ENDING, _DATA, _STAMP = 0, 1, 2, 3, 4, 5, _WORDS - 1
_ROW_TAG, _LEAVE_TAG = -2, -3
_READY = 8

ROOM = 8 * (_STAMP - _DATA)
"""Bytes of data that fit into a frame."""

FRAME_SLOT = 0


class Transfer(Protocol):
    """An array on its way."""

    def wait(self, deadline: float) -> None:
        """May be called again. Raises `CommTimeout` after `deadline` (monotonic), `CommError` if the peer is gone."""


class Wire(Protocol):
    """What gloo can do: arrays of uint8, matched by peer and slot, in order, of a length that both sides know."""

    rank: int
    size: int

    def send(self, data: Array, dest: int, slot: int) -> Transfer: ...

    def receive(self, data: Array, source: int, slot: int) -> Transfer: ...


class MessageReceiver(Protocol):
    """Who waits for a message of some tag."""

    tag: int

    def claim(self, letter: "IncomingMessage") -> None: ...


def data_slot(slot: int) -> int:
    """Where the data of the long message number `slot` go."""
    return 2 * slot


def echo_slot(slot: int) -> int:
    """Where, in the other direction, its receiver tells that they came."""
    return 2 * slot + 1


def pack_short(data: Array, tag: int) -> Array:
    """A frame with all of a message of at most `ROOM` bytes."""
    frame = _blank(tag, data.size)
    frame[_DATA:_STAMP].view(np.uint8)[: data.size] = data
    return frame.view(np.uint8)


def pack_long(data: Array, tag: int, slot: int, *, echo: bool) -> Array:
    """A frame that announces a message of more than `ROOM` bytes."""
    frame = _blank(tag, data.size)
    frame[_SLOT], frame[_ECHO] = slot, echo
    frame[_ENDING : _ENDING + 1].view(np.uint8)[:] = data[-8:]
    return frame.view(np.uint8)


def pack_row(row: Row) -> Array:
    """A frame with what a rank shows on entering a collective."""
    frame = _blank(_ROW_TAG, 0)
    frame[_DATA : _DATA + ROW_WORDS] = row
    return frame.view(np.uint8)


def pack_leave(data: Array) -> Array:
    """A frame with the last words of a rank, at most `ROOM` bytes."""
    return pack_short(data, _LEAVE_TAG)


def _blank(tag: int, nbytes: int) -> Array:
    frame = np.zeros(_WORDS, np.int64)
    frame[_TAG], frame[_NBYTES], frame[_STAMP] = tag, nbytes, 1
    return frame


@final
class IncomingMessage:
    """A message whose frame is here."""

    def __init__(self, wire: Wire, source: int, frame: Array) -> None:
        self.source = source
        self.tag, self.nbytes, self.slot, self.echo = map(int, frame[[_TAG, _NBYTES, _SLOT, _ECHO]])
        self.buffer: Array | None = None
        self._wire = wire
        self._frame = frame
        self._transfer: Transfer | None = None

    def open(self, buffer: Array) -> None:
        """Starts to fill `buffer`, unless another one was given before."""
        if self.buffer is not None:
            return
        self.buffer = buffer
        if self.nbytes <= ROOM:
            buffer[:] = self._frame[_DATA:_STAMP].view(np.uint8)[: self.nbytes]
        else:
            buffer[-8:] = ~self._ending()
            self._transfer = self._wire.receive(buffer, self.source, data_slot(self.slot))

    def landed(self) -> bool:
        """Whether `finish` will return at once."""
        return self._transfer is None or (self.buffer is not None and bool((self.buffer[-8:] == self._ending()).all()))

    def finish(self, deadline: float) -> None:
        """Waits until the buffer is filled."""
        if self._transfer is not None:
            self._transfer.wait(deadline)

    def _ending(self) -> Array:
        return self._frame[_ENDING : _ENDING + 1].view(np.uint8)


@final
class FrameInbox:
    """What comes from one source: `letters` that nobody took yet, `rows`, and in the end `failure_notices`."""

    def __init__(self, wire: Wire, source: int) -> None:
        self.letters: deque[IncomingMessage] = deque()
        self.rows: deque[Row] = deque()
        self.failure_notices = b""
        self._wire = wire
        self._source = source
        self._takers: deque[MessageReceiver] = deque()
        self._ready: deque[tuple[Array, Transfer]] = deque()
        for _ in range(_READY):
            self._lay_ready()

    def want(self, taker: MessageReceiver) -> None:
        """Gives `taker` the oldest letter of its tag, now or when it comes."""
        for letter in self.letters:
            if letter.tag == taker.tag:
                self.letters.remove(letter)
                taker.claim(letter)
                return
        self._takers.append(taker)

    def look(self, deadline: float) -> None:
        """Takes in the frames that have landed."""
        self._check_open()
        while self._ready[0][0][_STAMP]:
            self.take(deadline)

    def take(self, deadline: float) -> None:
        """Waits for the next frame and takes it in."""
        self._check_open()
        frame, transfer = self._ready[0]
        transfer.wait(deadline)
        self._ready.popleft()
        self._lay_ready()
        if frame[_TAG] == _ROW_TAG:
            self.rows.append(tuple(frame[_DATA : _DATA + ROW_WORDS].tolist()))
        elif frame[_TAG] == _LEAVE_TAG:
            self.failure_notices = frame[_DATA:_STAMP].tobytes()[: int(frame[_NBYTES])]
        else:
            self._hand_out(IncomingMessage(self._wire, self._source, frame))

    def let_pass(self) -> None:
        """Gives room to the letters that a taker of another tag overtakes: their sender may be waiting for that."""
        for letter in self.letters:
            letter.open(np.empty(letter.nbytes, np.uint8))

    def close(self) -> None:
        """Lets go of what is still to come; also where an error that somebody keeps still holds this box."""
        self._ready.clear()
        self.letters.clear()
        self._takers.clear()

    def has_row(self) -> bool:
        """Whether the source has shown a row that is not used yet; never blocks or fails."""
        return bool(self.rows) or any(frame[_STAMP] and frame[_TAG] == _ROW_TAG for frame, _ in self._ready)

    def _check_open(self) -> None:
        if not self._ready:
            raise CommError(f"a receive from rank {self._source}: the communicator was closed meanwhile")

    def _hand_out(self, letter: IncomingMessage) -> None:
        for taker in self._takers:
            if taker.tag == letter.tag:
                self._takers.remove(taker)
                taker.claim(letter)
                return
        self.letters.append(letter)

    def _lay_ready(self) -> None:
        frame = np.zeros(_WORDS, np.int64)
        self._ready.append((frame, self._wire.receive(frame.view(np.uint8), self._source, FRAME_SLOT)))
