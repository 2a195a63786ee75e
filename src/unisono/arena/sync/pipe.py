"""Pipe: a one-way stream of messages from one rank to another in shared memory.

The one idea: a ring of bytes with two counters. The writer alone advances `head` (bytes ever written), the reader
alone `tail` (bytes ever read); each looks at the other's counter to see what is there and what is free. A message is a
cell of 32 bytes (tag, length) followed by its bytes, padded to whole cells, so a header never wraps around the end.
Messages longer than the ring pass through it in pieces: neither side ever blocks here, it moves what can be moved.

Memory order: data before `head`, and the last read of data before `tail`; the argument is that of `barrier.py`.

    writer.start(tag, view); writer.push()          # True once all of it is in the ring
    tag, nbytes = reader.peek(); reader.open(); reader.pull(view)
"""

from unisono.arena.memory.fence import fence

CELL = 32
_HEAD, _TAIL = 0, 16
CONTROL_WORDS = 32


class _End:
    """What both ends have: the counters and the ring."""

    def __init__(self, control: memoryview, ring: memoryview) -> None:
        self._control = control
        self._ring = ring
        self._cells = ring.cast("q")
        self._capacity = len(ring)
        # Large messages are published in pieces, so that the reader copies while the writer goes on.
        self._piece = max(CELL, self._capacity // 4 // CELL * CELL)
        self.position = 0  # bytes that ever passed this end


class Writer(_End):
    """The sending end; holds at most one message under way."""

    def start(self, tag: int, message: memoryview) -> None:
        """Takes a message; the caller pushes until it is gone."""
        self._tag, self._message, self._sent = tag, message, -1

    def push(self) -> bool:
        """Moves what fits; True when the whole message is in the ring."""
        control, capacity = self._control, self._capacity
        room = capacity - (self.position - control[_TAIL])
        if fence is not None:
            fence()
        if self._sent < 0:
            if room < CELL:
                return False
            cell = self.position % capacity // 8
            self._cells[cell], self._cells[cell + 1] = self._tag, len(self._message)
            self.position += CELL
            room -= CELL
            self._sent = 0
        while (left := len(self._message) - self._sent) and room:
            count = min(left, room, self._piece)
            _copy_in(self._ring, self.position % capacity, self._message[self._sent : self._sent + count])
            self._sent += count
            moved = _padded(count)
            self.position += moved
            room -= moved
            if left > count:
                self._publish()
        self._publish()
        return self._sent == len(self._message)

    def _publish(self) -> None:
        if fence is not None:
            fence()
        self._control[_HEAD] = self.position


class Reader(_End):
    """The receiving end."""

    def peek(self) -> tuple[int, int] | None:
        """(tag, length) of the next message, which stays where it is; None if there is none."""
        if self._control[_HEAD] == self.position:
            return None
        if fence is not None:
            fence()
        cell = self.position % self._capacity // 8
        return self._cells[cell], self._cells[cell + 1]

    def open(self) -> None:
        """Steps over the header that `peek` showed: what follows are the message's bytes."""
        self.position += CELL
        self._release()

    def pull(self, target: memoryview) -> int:
        """Moves what is there into `target` (the rest of the open message); how many bytes."""
        there = self._control[_HEAD] - self.position
        if fence is not None:
            fence()
        pulled = 0
        while there and pulled < len(target):
            count = min(there, self._piece, len(target) - pulled)
            _copy_out(target[pulled : pulled + count], self._ring, self.position % self._capacity)
            pulled += count
            moved = _padded(count)
            self.position += moved
            there -= moved
            self._release()
        return pulled

    def _release(self) -> None:
        if fence is not None:
            fence()
        self._control[_TAIL] = self.position


def _padded(count: int) -> int:
    return -(-count // CELL) * CELL


def _copy_in(ring: memoryview, position: int, source: memoryview) -> None:
    first = min(len(source), len(ring) - position)
    ring[position : position + first] = source[:first]
    ring[: len(source) - first] = source[first:]


def _copy_out(target: memoryview, ring: memoryview, position: int) -> None:
    first = min(len(target), len(ring) - position)
    target[:first] = ring[position : position + first]
    target[first:] = ring[: len(target) - first]
