"""Stress for the hand-overs through shared memory: millions of them, every one checked.

    python benchmarks/handover.py --minutes 5 --ranks 2

Two kinds, in turns. *Meetings*: each rank writes numbers that depend on (rank, round) into its own line, all meet at
the barrier, and each sums what the others wrote; a number that was read before it was written, or after it was
overwritten, is noticed at once. *Messages*: random lengths and contents through the pipes in both directions, each
with a CRC. A wrong byte ends the run with an error; what is printed is how many hand-overs were right.
"""

import argparse
import time
import zlib

import numpy as np

import unisono
from unisono.arena.sync.barrier import Barrier
from unisono.comm.topology.shared_machine import share_segment
from unisono.resources import usable_cores
from unisono.world import World

WORDS = 64
ROUNDS = 2000


def meetings(world: World, barrier: Barrier, lines: list[np.ndarray], first: int, *, broken: bool = False) -> int:
    """`ROUNDS` rounds from number `first` on; how many hand-overs were checked. `broken`: arrive before writing."""
    base = np.arange(WORDS)
    constant = int(base.sum())
    peers = [rank for rank in range(world.size) if rank != world.rank]
    # Two sets of lines in turn: one meeting a round is enough (see comm/shm/communicator.py).
    mine = [lines[turn * world.size + world.rank] for turn in (0, 1)]
    theirs = [[lines[turn * world.size + peer] for peer in peers] for turn in (0, 1)]
    for number in range(first, first + ROUNDS):
        turn = number & 1
        if broken:
            barrier.wait(30.0)
        np.add(base, number * (world.rank + 1), out=mine[turn])
        if not broken:
            barrier.wait(30.0)
        for peer, line in zip(peers, theirs[turn], strict=True):
            found, expected = int(line.sum()), constant + WORDS * number * (peer + 1)
            if found != expected:
                raise AssertionError(f"round {number}: rank {world.rank} read {found} from rank {peer}, not {expected}")
    return ROUNDS * len(peers)


def messages(world: World, rng: np.random.Generator, count: int = 200) -> int:
    """Random messages around the ring, with a CRC each; how many were right."""
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for _ in range(count):
        payload = rng.integers(0, 256, int(rng.integers(0, 5000)) ** 2 // 400, np.uint8)
        note, told = np.array([len(payload), zlib.crc32(payload)]), np.empty(2, np.int64)
        world.comm.sendrecv(note, right, told, left, tag=1)
        got = np.empty(told[0], np.uint8)
        world.comm.sendrecv(payload, right, got, left, tag=2)
        if zlib.crc32(got) != told[1]:
            raise AssertionError(f"rank {world.rank}: a message of {told[0]} bytes from rank {left} is damaged")
    return count


def stress(world: World, seconds: float, *, broken: bool = False) -> dict[str, int]:
    """Runs both kinds for about `seconds`; the counts of this rank."""
    lines_bytes = 2 * world.size * WORDS * 8
    words = Barrier.words_needed(world.size)
    segment = share_segment(world.comm, list(range(world.size)), 8 * words + lines_bytes)
    crowded = world.size > usable_cores()
    barrier = Barrier(segment.words(0, words), world.rank, world.size, crowded=crowded)
    lines = list(segment.array(8 * words, 2 * world.size * WORDS, np.dtype(np.int64)).reshape(-1, WORDS))
    segment.close()
    rng = np.random.default_rng(world.rank)
    counts = {"meetings": 0, "messages": 0}
    first, deadline = 1, time.monotonic() + seconds
    more = np.ones(1, np.int32)
    while more[0]:
        counts["meetings"] += meetings(world, barrier, lines, first, broken=broken)
        counts["messages"] += messages(world, rng, 20)
        first += ROUNDS
        more[0] = time.monotonic() < deadline
        world.comm.broadcast(more)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    counts = unisono.run(lambda world: stress(world, 60 * options.minutes), options.ranks)
    for kind in ("meetings", "messages"):
        print(f"{sum(count[kind] for count in counts):,} {kind} handed over, all right")


if __name__ == "__main__":
    main()
