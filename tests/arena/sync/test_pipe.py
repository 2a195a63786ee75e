import random

import pytest

from unisono.arena.memory.segment import Segment
from unisono.arena.sync.pipe import CELL, CONTROL_WORDS, Reader, Writer


def ends(capacity: int) -> tuple[Segment, Writer, Reader]:
    segment = Segment.create(8 * CONTROL_WORDS + capacity)
    parts = segment.words(0, CONTROL_WORDS), segment.bytes(8 * CONTROL_WORDS, capacity)
    return segment, Writer(*parts), Reader(*parts)


@pytest.mark.parametrize("capacity", [4 * CELL, 16 * CELL, 4096])
def test_messages_of_any_length_pass_in_any_sync_schedule(capacity):
    segment, writer, reader = ends(capacity)
    rng = random.Random(capacity)
    for number in range(400):
        message = rng.randbytes(rng.choice([0, 1, 31, 32, 33, capacity - CELL, capacity, 3 * capacity + 5]))
        writer.start(number, memoryview(message))
        target, filled, opened, done = bytearray(len(message)), 0, False, False
        while not (done and opened and filled == len(message)):
            if not done and rng.random() < 0.6:
                done = writer.push()
            if not opened and (head := reader.peek()) is not None:
                assert head == (number, len(message))
                reader.open()
                opened = True
            if opened and rng.random() < 0.6:
                filled += reader.pull(memoryview(target)[filled:])
        assert bytes(target) == message
    assert reader.peek() is None
    segment.close()


def test_a_full_ring_takes_no_more():
    segment, writer, reader = ends(4 * CELL)
    writer.start(1, memoryview(bytes(3 * CELL)))
    assert writer.push()
    writer.start(2, memoryview(b""))
    assert not writer.push()
    reader.open()
    assert writer.push()
    segment.close()
