"""keep: snapshots of the user's own loop, and going on from the newest one at the exact batch, with the same bits.

The one idea: a program that is started again does the same again, except that `world.batches` passes over the batches
that are done. What is shared (parameters, the optimizer's state, buffers) comes from the snapshot at once; what is the
program's own (learning rates, schedulers and other `things`) when the loop comes to the batch it goes on with, as it
was at that very moment. So code after `step()` runs once for each step that a snapshot holds.

    model, optimizer = world.share(model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    unisono.keep(world, "runs/mine", every="500steps", scheduler=scheduler)
    for epoch in world.epochs(5):
        for batch in world.batches(dataset, batch_size=256): ...

SIGTERM, SIGUSR1, SIGHUP and Ctrl-C, to any rank or to the process that started them, end the loop of all ranks when
the next batch is asked for, with a snapshot: `AskedToEnd`, exit code 75.

Limits: batches must come in the same order again; loops that were left early are left there again. Epochs that are done
are not entered again by `world.epochs`. Other code between two loops over batches (of `range(5)`) runs for those that
are passed over, too; `keeper = unisono.keep(...)` tells by `keeper.catching_up`. Ranks are not replaced: a new process
would not know what the program has done so far.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from unisono.arena.layout import Sections
from unisono.comm.node import share_segment
from unisono.comm.telling import told
from unisono.errors import UserError
from unisono.files import WRONG_KINDS, check_entry, expand_user
from unisono.loop.attending import NOBODY
from unisono.loop.sharing import Sharing
from unisono.loop.things import check_thing, state_of
from unisono.strategies.shared import Lasting
from unisono.train.entries import LOCK
from unisono.train.every import Every
from unisono.train.journal import hint_of
from unisono.train.keeper import Habits, Keeper
from unisono.train.loop_state import find, put_back
from unisono.world import World


def keep(world: World, folder: str | Path, *, every: str = "", copies: int = 2, **things: Any) -> Keeper:
    """Snapshots of the loop of `world` go to `folder`; if there is one already, the loop goes on from it.

    Every rank calls it, after `world.share` and before the first batch. every: "500steps", "2epochs" or "30s"; empty:
    only when asked to end. copies: how many snapshots to keep. things: what has a `state_dict()`, or is a dict.
    """
    sharing, comm = world.sharing, world.comm
    habits = Habits(expand_user(folder), Every.parse("every", every), copies)
    if copies < 2:
        raise UserError(f"copies is {copies}", hint="give 2 or more: the newest may turn out to be damaged")
    if sharing.steps or sharing.attendant is not NOBODY:
        why = "the first batch" if sharing.steps else "unisono.keep, once more"
        raise UserError(f"unisono.keep after {why}", hint="call it once, right after world.share")
    for name, thing in things.items():
        check_thing(name, thing)
    state_of(things, {})  # what cannot be kept is said now, not with the first snapshot

    def look() -> dict[str, Any]:
        try:
            habits.folder.mkdir(parents=True, exist_ok=True)
            check_entry(habits.folder / LOCK, "file")
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror}", hint=_hint_of(error)) from None
        snapshot = find(habits.folder, sharing, sorted(things))
        if snapshot is None:
            return {}
        put_back(sharing, snapshot)
        return {"path": str(snapshot.path), **snapshot.facts}

    begun = told(comm, look)
    sharing.vectors.enter()  # the module's buffers are the committed ones again
    if habits.every:
        sharing.shared.spare = _spare(world, sharing)
    keeper = sharing.attendant = Keeper(sharing, habits, things, begun)
    return keeper


def _hint_of(error: OSError) -> str:
    return hint_of(error) if error.errno in WRONG_KINDS else "give a directory that you may write to"


def _spare(world: World, sharing: Sharing) -> Lasting:
    """Room for a copy, shared by all ranks."""
    lasting = sharing.shared.lasting
    sections = Sections({str(place): (array.shape, array.dtype) for place, array in enumerate(lasting.arrays)})
    with closing(share_segment(world.comm, list(range(world.size)), sections.nbytes)) as segment:
        *vectors, buffers, steps, scores, missed = (sections.array(segment, str(n)) for n in range(len(lasting.arrays)))
    return Lasting(vectors, buffers, steps, scores, missed)
