import os
import subprocess
import sys

import numpy as np
import pytest

from unisono.arena import segment as module
from unisono.arena.handover import Offer, take
from unisono.arena.segment import Segment
from unisono.errors import CommError, CommTimeout, UserError


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
    segment = Segment.create(4096)
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, 0)
    segment.close()


def test_a_process_we_did_not_fork_fetches_the_memory():
    segment = Segment.create(4096)
    segment.words(0, 1)[0] = 41
    offer = Offer(segment.fd)
    code = (
        "import sys; from unisono.arena.handover import take; from unisono.arena.segment import Segment\n"
        "words = Segment.attach(take(sys.argv[1], 20)).words(0, 1); words[0] += 1"
    )
    with subprocess.Popen([sys.executable, "-c", code, offer.name]) as child:
        offer.serve(1, timeout_s=20)
    assert child.returncode == 0
    assert segment.words(0, 1)[0] == 42
    segment.close()


def test_an_offer_nobody_takes_ends_in_time():
    segment = Segment.create(4096)
    offer = Offer(segment.fd)
    with pytest.raises(CommTimeout, match="1 of 1 processes did not fetch"):
        offer.serve(1, timeout_s=0.05)
    segment.close()


def test_a_name_nobody_offers_is_an_error():
    with pytest.raises(CommError, match="could not be fetched"):
        take("0" * 32, timeout_s=1)


def test_another_user_is_refused(monkeypatch):
    segment = Segment.create(4096)
    offer = Offer(segment.fd)
    pid = os.fork()
    if pid == 0:
        try:
            take(offer.name, 5)
        except CommError:
            os._exit(7)
        os._exit(0)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(CommError, match="asked for the shared memory of user id 12345"):
        offer.serve(1, timeout_s=5)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    segment.close()
