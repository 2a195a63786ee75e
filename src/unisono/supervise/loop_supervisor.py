"""LoopSupervisor: the ranks of `unisono.run` that share a model, as the process that started them sees it.

The one idea: once a model is shared, the death of a rank is a change of membership, as under the supervisor of
`unisono train`; only, nobody is replaced, for a new process would not know what the user's code had done so far.

    loop_supervisor = LoopSupervisor(size, words); loop_supervisor.attach(SharedModel(...));
    loop_supervisor.take_over(process_group, judge, timeout_s)

Ranks stand still in every wait of theirs, in a step or in `world.comm`: see `comm/shm/membership.py`.

Limits: one that computes for long between two of them keeps the others waiting for so long.
"""

import os
from collections.abc import Callable, Collection
from contextlib import closing
from typing import final

from unisono.arena.arena import Arena
from unisono.arena.membership import protocol
from unisono.arena.memory.segment import Sections
from unisono.arena.sync.barrier import Barrier
from unisono.errors import CommTimeout, UserError
from unisono.messages.rank_reports import SharedModel
from unisono.strategies.arena.state import ArenaState, SharedPlan
from unisono.supervise.processes import ChildExit, ProcessGroup
from unisono.supervise.wait_until_frozen import FreezeRequest, wait_until_frozen


@final
class LoopSupervisor:
    """Of `size` ranks. meetings: the words of the barrier of their communicator."""

    def __init__(self, size: int, meetings: memoryview) -> None:
        self._size, self._meetings = size, meetings
        self._shared: ArenaState | None = None
        self.halts = False
        """Whether the ranks end in good order, and leave a snapshot, when asked to."""

    def attach(self, model: SharedModel) -> None:
        """The memory of the model is mapped here, too; all ranks tell of it."""
        if self._shared is not None:
            return
        plan = SharedPlan(Sections.unpack(model.sections), self._size)
        try:
            fd = os.open(f"/proc/{model.pid}/fd/{model.fd}", os.O_RDWR)
        except OSError:  # whoever told it has died since: another one tells it, too
            return
        with closing(Arena.attach(fd, plan)) as arena:
            self._shared = arena.state

    def ask_to_halt(self) -> None:
        """All ranks are to leave their loops after a step."""
        if self._shared is not None:
            self._shared.requests.ask_to_halt()

    @property
    def any(self) -> bool:
        """Whether a model is shared."""
        return self._shared is not None

    def check_left(self, returned: Collection[int], living: Collection[int]) -> None:
        """A `UserError` if a rank has returned from the user's function while another waits for it in a step."""
        if self._shared is None:
            return
        words = self._shared.words
        view = protocol.current_view(words, self._size)
        members = () if view is None else view.members
        flags = {slot: protocol.flag_of(words, slot) for slot in members}
        for gone in sorted(flags.keys() & set(returned)):
            # One that came further waits for all members, and this one will not come.
            waiting = [slot for slot in sorted(flags.keys() & set(living)) if flags[slot] > flags[gone]]
            if waiting:
                (_, last, phase), (_, position, _) = protocol.unpack(flags[gone]), protocol.unpack(flags[waiting[0]])
                done = last if phase == protocol.COMMIT else max(0, last - 1)
                raise UserError(
                    f"rank {gone} returned after {done} steps, and rank {waiting[0]} waits for it in step {position}",
                    hint="go through the same number of batches on every rank: decide when to stop by what is the same "
                    "on all of them, batch.loss say",
                )

    def take_over(self, process_group: ProcessGroup, judge: Callable[[ChildExit], None], timeout_s: float) -> bool:
        """A new view without those who do not live; whether anybody is left. judge hears of those who end meanwhile."""
        assert self._shared is not None
        words = self._shared.words
        old = protocol.current_view(words, self._size)
        assert old is not None

        def listen() -> bool:
            ended = process_group.poll(0.0)
            for one in ended:
                judge(one)
            return bool(ended)

        def staying() -> list[int]:
            return [slot for slot in old.members if slot in process_group.living]

        def give_up(missing: list[int] | None) -> None:
            if missing == staying():
                return  # nobody waits for anybody: all compute, or evaluate after the last step
            raise CommTimeout(
                f"after the loss of a rank, ranks {missing} did not come to a step or a collective in {timeout_s:g} s",
                missing=missing or (),
                hint="is one of them in an endless loop? a longer wait is allowed with timeout_s",
            )

        members = wait_until_frozen(words, FreezeRequest(staying, listen, lambda: timeout_s, give_up))
        if not members:
            return False
        view = protocol.outcome(words, old, members)
        self._shared.restore(view)
        Barrier.decide(self._meetings, old.members, self._size)
        protocol.publish(words, view, self._size)
        return True
