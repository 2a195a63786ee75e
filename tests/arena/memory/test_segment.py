import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest

from unisono.arena.memory import fd_passing
from unisono.arena.memory import segment as module
from unisono.arena.memory.fd_passing import DescriptorOffer, take
from unisono.arena.memory.segment import Segment
from unisono.errors import CommError, CommTimeout, UserError


@contextmanager
def offered() -> Iterator[tuple[Segment, DescriptorOffer]]:
    """A page of memory, and its offer. No fixture: pytest would hold the memory for longer than the test."""
    with closing(Segment.create(4096)) as page:
        offer = DescriptorOffer(page.fd)
        try:
            yield page, offer
        finally:
            offer.withdraw()


def test_memory_is_zeroed_and_shared_with_forked_children():
    segment = Segment.create(5000)
    assert segment.nbytes == 8192
    words = segment.words(0, 4)
    assert list(words) == [0, 0, 0, 0]
    pid = os.fork()
    if pid == 0:
        words[2] = 7
        os._exit(0)
    os.waitpid(pid, 0)
    assert words[2] == 7
    assert segment.array(16, 1, np.dtype(np.int64))[0] == 7
    segment.close()
    segment.close()


def test_too_much_memory_is_refused_with_both_figures(monkeypatch):
    monkeypatch.setattr(module, "available_bytes", lambda: 3 * 2**20)
    with pytest.raises(UserError, match=r"4 MiB of shared memory are needed, 3 MiB are available\nHINT: use fewer"):
        Segment.create(4 * 2**20)


def test_a_segment_cannot_be_cut_short():
    with closing(Segment.create(4096)) as page, pytest.raises(PermissionError):
        os.ftruncate(page.fd, 0)


def test_a_process_we_did_not_fork_fetches_the_memory():
    with offered() as (page, offer):
        page.words(0, 1)[0] = 41
        code = (
            "import sys; from unisono.arena.memory.fd_passing import take\n"
            "from unisono.arena.memory.segment import Segment\n"
            "words = Segment.attach(take(sys.argv[1], 20)).words(0, 1); words[0] += 1"
        )
        with subprocess.Popen([sys.executable, "-c", code, offer.name]) as child:
            offer.serve([1], timeout_s=20)
        assert child.returncode == 0
        assert page.words(0, 1)[0] == 42


def test_an_offer_nobody_takes_ends_in_time():
    with offered() as (_, offer):
        with pytest.raises(CommTimeout, match="2 of the ranks 1, 2 did not fetch") as caught:
            offer.serve([1, 2], timeout_s=0.05)
        assert caught.value.missing == (1, 2)


def test_a_name_nobody_offers_is_an_error():
    with pytest.raises(CommError, match="could not be fetched"):
        take("0" * 32, timeout_s=1)


@pytest.mark.parametrize("strangers", [1, 3])
def test_another_user_gets_nothing_and_stops_nobody(monkeypatch, strangers):
    with offered() as (_, offer):
        real, asked = fd_passing.user_of, []

        def user_of(peer):
            asked.append(peer)
            return 12345 if len(asked) <= strangers else real(peer)

        monkeypatch.setattr(fd_passing, "user_of", user_of)
        codes = []
        for _ in range(strangers + 1):  # the last one is one of us
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(take_with(real, offer.name))
                except CommError:
                    os._exit(7)
                os._exit(0)
            if len(codes) < strangers:
                with pytest.raises(CommTimeout):
                    offer.serve([1], timeout_s=0.3)
            else:
                offer.serve([1], timeout_s=20)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert codes == [7] * strangers + [0]


def take_with(user_of, name):
    fd_passing.user_of = user_of
    return take(name, 20)


def test_memory_offered_by_another_user_is_refused(monkeypatch):
    with offered() as (_, offer):
        monkeypatch.setattr(fd_passing, "user_of", lambda peer: 12345)
        with pytest.raises(CommError, match="user id 12345 offers shared memory"):
            take(offer.name, 5)


def test_more_takers_at_once_than_the_queue_holds(monkeypatch):
    monkeypatch.setattr(fd_passing, "_BACKLOG", 1)
    pids = []
    with offered() as (_, offer):
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                os.close(take(offer.name, 20))
                os._exit(0)
            pids.append(pid)
        offer.serve(list(range(8)), timeout_s=20)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
