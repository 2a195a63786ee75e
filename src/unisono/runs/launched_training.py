"""A launched run: ranks that another launcher started (mpirun, torchrun, srun); no supervisor watches over them.

The one idea: what a supervisor does from outside, the first rank does beside its work: it writes snapshots in a thread.
A signal to any rank is a request that all obey after one and the same round; the first rank saves what that round left,
and all leave with the exit code that says "resume me". What cannot be done from inside is to take over: a rank that
dies ends the run within moments, and the launcher, or its user, starts it again.

    found = train_launched(World(comm, report), job, RunPlaces(weights, snapshots), Origin(position, snapshot),
    on_event)

A node that is lost, or a rank of the arena, is noticed by all others; they cannot go on without it, but the first rank,
if it lives, saves what they had reached together, so that nothing is lost but the step under way. A rank that fails
with an exception is not lost, for it would fail again: all leave with its exit code (`strategies/failure_notice.py`).
If the first rank's node is lost, the first rank of another one saves, where it sees the run directory
(`runs/snapshots/failover.py`).

Limits: strategies that have no snapshots (those of others) are trained to the end, and signals end them as they end any
process. A rank that dies in the middle of an update, on the first rank's node, leaves nothing to be saved: the run goes
on from the last snapshot that was made before. A rank that waits inside an MPI collective for one that died does not
look up: mpirun ends it.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, final

from threadpoolctl import threadpool_limits

from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import COMMIT, View
from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import broadcast_object
from unisono.comm.collective_check import lost_rank_error
from unisono.comm.topology.local_peer_watch import PeerWatch
from unisono.errors import AskedToEnd, CommError, NodeLost, OtherFailed, RankLost, UnisonoError
from unisono.messages.events import Event
from unisono.messages.rank_reports import StoppedAt
from unisono.runs.early_end import Halted
from unisono.runs.snapshots.failover import save_failover
from unisono.runs.snapshots.saver import Saver, last_done, restore_arrays
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.background_writer import ThreadWriter
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.strategies.arena.arena_join import ArenaStart
from unisono.strategies.arena.state import ArenaState, SnapshotSource
from unisono.strategies.base import Strategy
from unisono.strategies.failure_notice import FailureNotice
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.supervise.config import SupervisorResult
from unisono.supervise.signals import finish_undisturbed, ignore_signals_after, stop_requests
from unisono.training.job import Job
from unisono.training.trainer import run_rounds
from unisono.world import World

_SAVING_S = 60.0
"""How long ranks of the first rank's node let it write a snapshot."""
_SAYING_S = 10.0
"""How long a rank that has failed may take to say why."""
_ENDING_S = 1.0
"""How long the end of a process may take after its connections are closed."""

OnEvent = Callable[[Event], None]


@final
@dataclass(frozen=True)
class Origin:
    """Where a run begins: after round `position` of a snapshot, which only the first rank holds."""

    position: int = 0
    snapshot: Snapshot | None = None


BEGINNING = Origin()


def train_launched(
    world: World,
    job: Job,
    places: RunPlaces,
    origin: Origin = BEGINNING,
    on_event: OnEvent = lambda event: None,
    on_tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """To the end, on every rank; `Halted`, on every rank, if one of them was asked to end. `places` are rank 0's, the
    failover place in them the others'.

    on_tick() is called after every round.
    """
    comm = world.comm
    with threadpool_limits(job.recipe.ranks.threads, user_api="blas"), closing(PeerWatch(comm)) as peer_watch:
        model = job.model_of(world.rank)
        fill = origin.snapshot and partial(restore_arrays, model, job.optimizer, snapshot=origin.snapshot)
        begun = job.strategy(comm, model, ArenaStart(origin.position, fill, peer_watch.exited))
        # Whatever ends this rank: closing, the strategy tells other machines why, and SIGTERM must not cut that short.
        with begun as strategy, ignore_signals_after(Exception, SystemExit):
            if strategy.snapshot_source is None:
                found = run_rounds(strategy, model, job, world.report, places.weights, on_tick)
                finish_undisturbed()
                assert not isinstance(found, StoppedAt), "without snapshots nobody heeds a request"
                return found
            folder = places.snapshots if comm.rank == 0 else None
            saver = Saver(job, model, strategy.snapshot_source, folder, on_event, ThreadWriter())
            strategy.set_on_snapshot_copy(saver.save_copy)
            stop_handler = _StopHandler(strategy, peer_watch)

            def tick() -> None:
                saver.tick()
                on_tick()

            # Before the saver, which may wait for a snapshot that is being written.
            with saver, ignore_signals_after(Exception, SystemExit), stop_requests(stop_handler):
                try:
                    found = run_rounds(strategy, model, job, world.report, places.weights, tick)
                except OtherFailed:
                    stop_handler.over = True
                    raise
                except (NodeLost, RankLost) as error:
                    stop_handler.over = True
                    if (failed := _failed(strategy.snapshot_source)) is not None:
                        # Launchers end everybody when the first one leaves, which is to be the one that has the word.
                        wait_until(lambda: bool(peer_watch.exited()), _SAYING_S)
                        raise failed from error
                    view = _last_view(strategy.snapshot_source)
                    # Not if the first rank is gone, nor in the middle of an update, which nobody here can take back.
                    if view is None or (isinstance(error, RankLost) and (view.reached != COMMIT or 0 in error.ranks)):
                        raise
                    position, writer = last_done(job, strategy.scores, view), 0
                    save = partial(saver.save_last, position)
                    mailbox = (
                        strategy.snapshot_source.mailbox if isinstance(strategy.snapshot_source, ArenaState) else None
                    )
                    if (
                        mailbox is not None
                        and places.failover_place is not None
                        and _first_lost(error, mailbox.machine_layout)
                    ):
                        save, writer = (
                            partial(save_failover, saver, places.failover_place, position),
                            mailbox.machine_layout.ranks[0],
                        )
                    raise _halted_by_loss(comm, writer, save, error, peer_watch) from error
                except CommError as error:
                    # A connection that breaks does not say whose process has ended; that is seen a moment later.
                    if wait_until(lambda: bool(peer_watch.exited()), _ENDING_S):
                        raise lost_rank_error(comm.rank, "the run", peer_watch.exited()) from error
                    raise
                except AskedToEnd:
                    raise
                except SystemExit as error:
                    failure = UnisonoError(f"rank {comm.rank} left the run by sys.exit({error.code!r})")
                    _announce_failure(strategy, failure)
                    raise failure from error
                except Exception as error:
                    _announce_failure(strategy, error)
                    raise
                stop_handler.over = True
                if isinstance(found, StoppedAt):
                    assert found.position is not None
                    _halt(world, partial(saver.save_last, strategy.left_at(found.position)))
                finish_undisturbed()  # before the handlers are given back: what is left may take minutes
                saver.save_end(strategy.scores)
            return found


@final
class _StopHandler:
    """Called in a handler of signals."""

    def __init__(self, strategy: Strategy, peer_watch: PeerWatch) -> None:
        self._strategy, self._peer_watch = strategy, peer_watch
        self.over = False
        """Whether all rounds are done: others may have left."""

    def __call__(self) -> None:
        # Launchers send one to those who are left when a rank has died: no common end can come then.
        if not self.over and (gone := self._peer_watch.exited()):
            if isinstance(self._strategy.snapshot_source, ArenaState):
                return  # the next meeting tells, and not in the middle of an update
            raise lost_rank_error(self._strategy.rank, "the run", gone)
        self._strategy.ask_to_halt()


def _announce_failure(strategy: Strategy, error: Exception) -> None:
    """This rank fails, and would again: nobody is to take it for lost."""
    kept = strategy.snapshot_source
    if isinstance(kept, ArenaState):
        slot = strategy.rank if kept.mailbox is None else kept.mailbox.machine_layout.slots_of([strategy.rank])[0]
        kept.failure_notices.write(slot, FailureNotice.of(error, f"rank {strategy.rank}"))


def _failed(kept: SnapshotSource | None) -> UnisonoError | None:
    """What to leave with if somebody is not lost but failed."""
    said = kept.failure_notices.first if isinstance(kept, ArenaState) else None
    return said.error(first_hand=False) if said is not None and said.failed else None


def _first_lost(error: CommError, machine_layout: MachineLayout) -> bool:
    """Whether the first node is, or may be, the one that was lost. Whoever was only told of it cannot tell."""
    if machine_layout.node == 0 or not isinstance(error, NodeLost):
        return False
    return not error.first_hand or 0 in error.nodes


def _halted_by_loss(
    comm: Communicator, writer: int, save: Callable[[], str], error: CommError, peer_watch: PeerWatch
) -> Halted:
    """A rank or a node is lost: what is left has reached all there is to go on from. Rank `writer` saves it."""
    nodes = error.nodes if isinstance(error, NodeLost) and error.certain else ()
    outcome = SupervisorResult(lost=error.message, lost_nodes=nodes)  # there is another hint to give: where to go on
    if comm.rank != writer:
        # Launchers end everybody when the first one leaves: not before the writer is done, if it is on this node.
        wait_until(lambda: not peer_watch.sees(writer) or writer in peer_watch.exited(), _SAVING_S)
        return Halted(outcome, "")
    try:
        return Halted(outcome, save())
    except UnisonoError as trouble:
        return Halted(outcome, "", str(trouble))


def _last_view(kept: SnapshotSource | None) -> View | None:
    """Where ranks stand when one of them has learnt at a meeting that somebody will not come: nobody goes past it.
    None: they have no arena."""
    if not isinstance(kept, ArenaState):
        return None
    view = protocol.current_view(kept.words, kept.size)
    assert view is not None
    return protocol.outcome(kept.words, view, ())


def _halt(world: World, save: Callable[[], str]) -> NoReturn:
    """Nobody leaves before the snapshot is there: launchers end everybody when the first one does."""
    outcome = SupervisorResult()
    try:
        snapshot = broadcast_object(world.comm, save)
    except CommError:
        raise
    except UnisonoError as error:
        raise Halted(outcome, "", str(error)) from None
    raise Halted(outcome, snapshot)
