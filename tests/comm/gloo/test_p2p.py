"""Frames and post over a wire in memory that behaves like gloo: it delivers only into receives that lie ready."""

from collections import deque

import numpy as np
import pytest

from unisono.comm.base import ANY, Array, Envelope
from unisono.comm.gloo.frames import ROOM
from unisono.comm.gloo.p2p import TaggedMessages
from unisono.errors import CommError, CommTimeout

Slot = tuple[int, int, int]


class Parcel:
    """One send or receive; done when its counterpart has come."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self.done = False

    def wait(self, deadline: float) -> None:
        if not self.done:
            raise CommTimeout("it would wait for ever")


class MemoryWire:
    """One rank's end; `sends` and `receives` that found no counterpart yet are common to all ends."""

    def __init__(self, rank: int, size: int, sends: dict[Slot, deque[Parcel]], receives: dict[Slot, deque[Parcel]]):
        self.rank, self.size, self.sends, self.receives = rank, size, sends, receives

    def send(self, data: Array, dest: int, slot: int) -> Parcel:
        self.sends.setdefault((self.rank, dest, slot), deque()).append(packed := Parcel(data))
        self.match((self.rank, dest, slot))
        return packed

    def receive(self, data: Array, source: int, slot: int) -> Parcel:
        self.receives.setdefault((source, self.rank, slot), deque()).append(packed := Parcel(data))
        self.match((source, self.rank, slot))
        return packed

    def match(self, key: Slot) -> None:
        sends, receives = self.sends.get(key, deque()), self.receives.get(key, deque())
        while sends and receives:
            sent, received = sends.popleft(), receives.popleft()
            assert sent.data.size == received.data.size, "gloo would end the process"
            received.data[:] = sent.data
            sent.done = received.done = True


@pytest.fixture
def posts() -> list[TaggedMessages]:
    sends: dict[Slot, deque[Parcel]] = {}
    receives: dict[Slot, deque[Parcel]] = {}
    return [TaggedMessages(MemoryWire(rank, 3, sends, receives), timeout_s=1.0) for rank in range(3)]


def message(length: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, length, np.uint8)


@pytest.mark.parametrize("length", [0, 1, 7, 8, ROOM - 1, ROOM, ROOM + 1, 10_000])
def test_a_message_arrives(posts, length):
    sending = posts[0].send(message(length), 1, tag=5, echo=False)
    got = np.zeros(length, np.uint8)
    posts[1].receive(got, 0, tag=5).wait()
    sending.wait()
    np.testing.assert_array_equal(got, message(length))


def test_a_long_send_is_done_when_the_receiver_has_it(posts):
    sending = posts[0].send(message(5000), 1, tag=0, echo=True)
    assert not sending.test()
    receiving = posts[1].receive(np.zeros(5000, np.uint8), 0, tag=0)
    assert receiving.test()
    assert sending.test()
    sending.wait()
    receiving.wait()


def test_a_short_send_is_done_at_once_until_the_receiver_is_far_behind(posts):
    for _ in range(64 + 8):
        assert posts[0].send(message(3), 1, tag=0, echo=True).test()
    with pytest.raises(CommTimeout):
        posts[0].send(message(3), 1, tag=0, echo=True)


def test_a_receive_is_not_done_before_the_data_are(posts):
    got = np.zeros(5000, np.uint8)
    receiving = posts[1].receive(got, 0, tag=0)
    assert not receiving.test()
    posts[0].send(message(5000), 1, tag=0, echo=False)
    assert receiving.test()
    np.testing.assert_array_equal(got, message(5000))


def test_long_messages_are_overtaken_and_their_senders_do_not_wait(posts):
    first = posts[0].send(message(5000, 1), 1, tag=1, echo=False)
    assert posts[1].probe(0, 1) == Envelope(0, 1, 5000)
    with pytest.raises(CommTimeout):
        first.wait()  # a probe takes nothing in
    second = posts[1].receive(np.zeros(4000, np.uint8), 0, tag=2)
    assert not second.test()
    first.wait()
    posts[0].send(message(4000, 2), 1, tag=2, echo=False)
    assert second.test()
    got = np.zeros(5000, np.uint8)
    posts[1].receive(got, 0, tag=1).wait()
    np.testing.assert_array_equal(got, message(5000, 1))


@pytest.mark.parametrize(("sent", "expected"), [(3, 5), (5, 3), (5000, 3), (3, 5000), (5000, 6000)])
def test_a_wrong_length_is_told_and_the_sender_goes_on(posts, sent, expected):
    sending = posts[0].send(message(sent), 1, tag=0, echo=True)
    got = np.zeros(expected, np.uint8)
    receiving = posts[1].receive(got, 0, tag=0)
    for _ in range(2):
        with pytest.raises(CommError, match=f"{sent} bytes came from rank 0.*{expected}"):
            receiving.wait()
    sending.wait()
    assert not got.any()


def test_probe_takes_turns(posts):
    for source in (1, 2):
        for _ in range(2):
            posts[source].send(message(source), 0, tag=source, echo=False)
    found = []
    for _ in range(4):
        envelope = posts[0].probe(ANY, ANY)
        assert envelope is not None
        found.append(envelope.source)
        posts[0].receive(np.zeros(envelope.nbytes, np.uint8), envelope.source, envelope.tag).wait()
    assert found == [1, 2, 1, 2]
    assert posts[0].probe(ANY, ANY) is None


def test_who_still_waits_when_it_is_closed_is_told(posts):
    receiving = posts[1].receive(np.zeros(3, np.uint8), 0, tag=0)
    posts[1].close(0.0)
    for wait in (receiving.test, receiving.wait):
        with pytest.raises(CommError, match="a receive from rank 0: the communicator was closed meanwhile"):
            wait()


def test_probe_sees_nothing_that_a_receive_waits_for(posts):
    receiving = posts[1].receive(np.zeros(3, np.uint8), 0, tag=0)
    posts[0].send(message(3), 1, tag=0, echo=False)
    assert posts[1].probe(0, ANY) is None
    assert receiving.test()


def test_an_exchange_names_who_has_not_come(posts):
    with pytest.raises(CommTimeout) as caught:
        posts[1].exchange("barrier", (0,) * 6)
    assert caught.value.missing == (0, 2)
    with pytest.raises(CommTimeout, match=r"in barrier; rank 2 did not arrive") as caught:
        posts[0].exchange("barrier", (0,) * 6)
    assert caught.value.missing == (2,)


def test_last_words_are_no_message_and_are_heard_though_the_wire_is_broken(posts):
    posts[1].send(message(3), 0, tag=7, echo=False)
    posts[1].announce_failure(np.frombuffer(b"no label", np.uint8), 1.0)
    box = posts[0]._boxes[2]
    box._ready[0][0][-1] = 1  # a frame seems to have come from rank 2, and its wait fails
    assert posts[0].failure_notices() == [b"no label"]
    assert posts[0].probe(1, ANY) == Envelope(1, 7, 3)
    assert posts[2].failure_notices() == [b"no label"]
    assert posts[1].failure_notices() == []
