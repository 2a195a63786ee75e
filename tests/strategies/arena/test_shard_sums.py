"""The sum of a batch is that of its canonical tree, whoever made which part of it, and whoever died in the middle."""

import random
from contextlib import suppress

import numpy as np
import pytest

from unisono.arena.reduction_tree import combine
from unisono.strategies.arena import shard_sums as module
from unisono.strategies.arena.shard_sums import ShardAssignment, rows_needed
from unisono.strategies.machines.machine_layout import MachineLayout

LENGTH, RANKS, POSITION = 7, 5, 13


class Died(Exception):
    pass


def leaves(live: int, position: int) -> np.ndarray:
    """Sums of these depend on their order."""
    rng = np.random.default_rng((live, position))
    return (10.0 ** rng.uniform(-4, 4, (live, LENGTH))).astype(np.float32)


def attempt(assignment: ShardAssignment, live: int, members: tuple[int, ...], slot: int, breaks: int | None) -> int:
    """What a member does until READY; `breaks`: before which shard it is interrupted. How many shards it computed."""
    mine = assignment.share(live, members, slot)
    kept = assignment.begin(live, POSITION, mine)
    done = {shard for span in kept for shard in range(*span)}
    computed = 0
    for shard in mine:
        if shard in done:
            continue
        row = assignment.rows(live, range(shard, shard + 1))[0]
        if computed == breaks:
            row[: LENGTH // 2] = np.nan  # in the middle of it
            raise Died
        row[...] = leaves(live, POSITION)[shard]
        assignment.label(live, POSITION, shard, 1)
        computed += 1
    if len(mine) > 1:
        assignment.leave(live, members, slot, POSITION, kept)
    return computed


@pytest.mark.parametrize("seed", range(40))
def test_any_interruptions_leave_the_sum_of_the_tree(monkeypatch, seed):
    """Members change again and again, and each is interrupted before a shard, in its sums, or not at all."""
    rng = random.Random(seed)
    live = rng.choice([1, 2, 3, 5, 7, 8, 11, 16])
    gradients, labels = np.zeros((live, LENGTH), np.float32), np.zeros(live, np.int64)
    gradients[...], labels[...] = np.inf, (POSITION - 1) << 20 | 1  # of the round before
    struck = 0.0

    def combine_or_die(parts, out, ufunc, tree):
        if rng.random() < struck:
            out[: LENGTH // 2] = np.nan
            raise Died
        combine(parts, out, ufunc, tree)

    monkeypatch.setattr(module, "combine", combine_or_die)
    for view in range(6):
        members = tuple(sorted(rng.sample(range(RANKS), rng.randint(1, min(RANKS, live)))))
        struck = 0.4 if view < 5 else 0.0
        for slot in members:
            breaks = rng.choice([None, 0, 1, 2]) if view < 5 else None
            with suppress(Died):
                attempt(ShardAssignment(gradients, labels.data), live, members, slot, breaks)
    expected, found = np.empty(LENGTH, np.float32), np.empty(LENGTH, np.float32)
    combine(list(leaves(live, POSITION)), expected, np.add)
    whole = ShardAssignment(gradients, labels.data).finish(live, members, 0, LENGTH, found)
    assert whole.tobytes() == expected.tobytes()


@pytest.mark.parametrize("live", [3, 8, 13])
def test_what_others_have_finished_is_not_computed_again(live):
    gradients, labels = np.zeros((live, LENGTH), np.float32), np.zeros(live, np.int64)
    before, after = (0, 1, 2), (0, 2)
    total = sum(attempt(ShardAssignment(gradients, labels.data), live, before, slot, None) for slot in before)
    assert total == live
    again = sum(attempt(ShardAssignment(gradients, labels.data), live, after, slot, None) for slot in after)
    # A sum lies in the row of its first shard: that one is gone if its others have come to somebody else.
    assert again <= 1


def test_each_machine_has_rows_for_its_own_shards():
    machine_layout = MachineLayout.of([0, 0, 0, 3], rank=3, shards=8)
    assert rows_needed((8, 7), machine_layout) == 2
    assert rows_needed((8, 5)) == 8
