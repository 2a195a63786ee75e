"""Two machines, one of which is explored: its exchanger is the real one, and what the other one sends is known.

The one idea: what a machine sends in a round is decided by the recipe. So both are run once, undisturbed, and what goes
between them is written down; then one of them is run in other orders, and its exchanger is answered from the notes.
What it sends itself must be what it sent the first time: sums of gradients that all exist, for its round, in one
dealing.

    setting = two_machines(ranks=2); setting.run({37: KILL}).fault

Limits: the exchanger is not killed: under supervisors that is the end of the run.
"""

from types import SimpleNamespace
from typing import Any, final

import numpy as np

from support.arena.scheduler import Scheduler
from support.arena.supervised_run import Setting, replaced
from support.arena.tiny_job import SHARDS
from unisono.launch.exchanger_process import ExchangeRounds
from unisono.strategies.machines.machine_exchange import Exchanger
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import STEP

_LINE: Any = SimpleNamespace(fileno=lambda: -1)
_NAMES = ["one machine", "the other one"]


def two_machines(ranks: int, optimizer: str = "momentum") -> Setting:
    """The first of two, with so many ranks; the second has one."""
    groups = tuple(range(ranks)), (ranks,)
    here, there = (
        Setting(len(groups[node]), optimizer, machine_layout=MachineLayout(groups, node, shards=SHARDS))
        for node in range(2)
    )
    sent = _record_both([here, there])

    def start_exchanger(scheduler: Scheduler) -> None:
        comm: Any = _Answering(here, sent)
        scheduler.start("the courier", lambda: _serve(here, comm))

    here.start_exchanger = start_exchanger
    return here


def _serve(setting: Setting, comm: Any) -> None:
    shared = setting.attach()
    ExchangeRounds(shared, Exchanger(shared, comm, _NAMES), 0).serve(_LINE)


def _record_both(settings: list[Setting]) -> list[list[np.ndarray]]:
    """Both machines with one rank each: what each sends, message by message."""
    scheduler = Scheduler(lambda number, scheduler: None)
    sent: list[list[np.ndarray]] = [[], []]
    left: list[int] = []

    def walk(node: int) -> None:
        settings[node].walk_alone()
        left.append(node)
        if node == 0:
            scheduler.wait_until(lambda: len(left) == 2)

    for node, setting in enumerate(settings):
        setting.memory.scheduler = scheduler
        scheduler.start(f"machine {node}", lambda node=node: walk(node))
    for node, setting in enumerate(settings):
        comm: Any = _Meeting(node, sent, scheduler)
        scheduler.start(f"courier {node}", lambda setting=setting, comm=comm: _serve(setting, comm))
    with replaced(scheduler.wait_until):
        fault = scheduler.run()
        for setting in settings:
            setting.memory.scheduler = None
        scheduler.close()
    assert not fault, fault
    return sent


@final
class _Meeting:
    """A communicator of two, between actors."""

    def __init__(self, rank: int, sent: list[list[np.ndarray]], scheduler: Scheduler) -> None:
        self.rank, self._sent, self._scheduler = rank, sent, scheduler

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        mine, theirs = self._sent[self.rank], self._sent[1 - self.rank]
        mine.append(array.copy())
        self._scheduler.note_change()
        self._scheduler.wait_until(lambda: len(theirs) >= len(mine))
        pair = (mine[-1], theirs[len(mine) - 1])
        return np.stack(pair if self.rank == 0 else pair[::-1])


@final
class _Answering:
    """The same for the first machine, from the notes."""

    def __init__(self, setting: Setting, sent: list[list[np.ndarray]]) -> None:
        self.rank, self._setting, self._sent, self._calls = 0, setting, sent, 0

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        before, answer = self._sent[0][self._calls], self._sent[1][self._calls]
        self._calls += 1
        mailbox = self._setting.shared.mailbox
        assert mailbox is not None
        # But for the last word, whether this machine was asked to end. A survey also tells how long ranks took.
        if mailbox.ordered[0] == STEP and array[:-8].tobytes() != before[:-8].tobytes():
            raise AssertionError(f"message {self._calls} of the courier is not that of a quiet run")
        return np.stack([array, answer])
