"""What the process that started ranks hears of a model they share."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import unisono
from unisono.arena.membership import protocol
from unisono.arena.memory.segment import Sections
from unisono.arena.sync.waiting import wait_until
from unisono.messages.rank_reports import SharedModel
from unisono.supervise.loop_supervisor import LoopSupervisor


def test_news_of_a_rank_that_has_died_since_share_nothing():
    """The memory is reached through the rank that tells of it; another one tells of it, too."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    loop_supervisor = LoopSupervisor(2, memoryview(b""))
    sections = Sections({"words": (4, np.dtype(np.int64))})
    loop_supervisor.attach(SharedModel(pid, 5, sections.pack()))
    assert not loop_supervisor.any
    loop_supervisor.check_left([0], [1])


def test_a_loss_ends_nothing_while_nobody_waits(monkeypatch, tmp_path):
    """Ranks that evaluate for longer than ranks wait for each other."""
    torch = pytest.importorskip("torch")
    given_up, plain = tmp_path / "given up", protocol.not_still

    def not_still(words, living: list[int]) -> list[int]:
        Path(given_up).touch()
        return plain(words, living)

    monkeypatch.setattr(protocol, "not_still", not_still)

    def work(world: unisono.World) -> str:
        model = torch.nn.Linear(13, 2)
        world.share(model, torch.optim.SGD(model.parameters(), lr=0.1), shards=8)
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        assert wait_until(given_up.exists, 60.0)
        return "evaluated"

    with pytest.warns(UserWarning, match="rank 1 was killed by SIGKILL; the others took over"):
        found = unisono.run(lambda world: [torch.manual_seed(0), work(world)][1], 3, timeout_s=0.5)
    assert found == ["evaluated", None, "evaluated"]
