"""How long a run stands still when a rank is lost, in shards: until it goes on, and until a replacement has joined.

    python benchmarks/takeover.py                                      # 4 shards of 1 s, on 2 and 4 ranks; 3 minutes
    python benchmarks/takeover.py --shard-s 0.2 --kills 20             # quicker
    python benchmarks/takeover.py --ranks 2 --kills 1 --shard-s 0.05   # a smoke run

Ranks are killed with kill -9 at random moments, the next one when the one before was replaced. Printed are, in units of
the time that a shard takes, how long it was from a kill until the survivors went on (aim: at most the rest of a shard)
and until the replacement had joined; how many shards were computed for each death that a quiet run would not have
computed; and whether the weights are those of a quiet run.

Limits: the network only sleeps, so that a shard takes as long on a busy machine as on an idle one, and a process of it
is quick to start.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import final

from unisono.messages.events import Event, RankDied, RankJoined
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.training.job import prepare

SHARD, SLACK_S = 16, 0.3
"""Samples of a shard; what it may take on a busy machine to hear of a kill, or to fork a process."""
STEPS = 4
"""For each kill, about: those that are not needed pass without one."""
NETWORK = """
import time
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(13, 5)

    def forward(self, x):
        if len(x) == {samples}:  # no trial
            with open({log!r}, "ab", buffering=0) as file:
                file.write(b".")
            time.sleep({shard_s})
        return self.linear(x)
"""


@final
@dataclass
class Found:
    """What a run came to."""

    sha256: str = ""
    computed: int = 0
    """Shards that were begun."""
    reforming_s: list[float] = field(default_factory=list)
    joining_s: list[float] = field(default_factory=list)


def run(folder: Path, shards: int, ranks: int, shard_s: float, steps: int, moments: list[float]) -> Found:
    """moments: when a rank is killed, in seconds after the first shard was begun, or after the last one has joined."""
    folder.mkdir()
    log, network, found = folder / "log", folder / "network.py", Found()
    log.touch()
    network.write_text(NETWORK.format(samples=SHARD, log=str(log), shard_s=shard_s))
    rows = SHARD * shards * steps
    job = prepare(
        Recipe.from_options(
            model=f"{network}:Net", data=f"synthetic:classes=5,rows={rows},features=13,test_rows=0", epochs=1,
            batch_size=SHARD * shards, shards=shards, ranks=ranks, max_restarts=len(moments) + 1,
        )
    )  # fmt: skip
    left, due, killed = list(moments), 0.0, 0.0

    def on_event(event: Event) -> None:
        nonlocal due
        match event:
            case RankDied():
                found.reforming_s.append(time.monotonic() - killed)
            case RankJoined():
                found.joining_s.append(time.monotonic() - killed)
                due = time.monotonic() + left[0] if left else due

    def on_tick(pids: Mapping[int, int]) -> None:
        nonlocal due, killed
        if left and not due and log.stat().st_size:
            due = time.monotonic() + left[0]
        if left and due and time.monotonic() >= due and len(pids) == ranks:
            killed, due = time.monotonic(), float("inf")
            left.pop(0)
            os.kill(pids[len(left) % ranks], signal.SIGKILL)

    outcome = SupervisedRun(job, RunPlaces()).train(lambda rank, value: None, on_event, on_tick=on_tick)
    found.sha256 = next(result["weights_sha256"] for result in outcome.results.values() if result)
    found.computed = log.stat().st_size
    return found


def measure(folder: Path, options: argparse.Namespace, ranks: int, rng: random.Random) -> bool:
    """A line of the table; whether all is well."""
    shards, shard_s, steps = options.shards, options.shard_s, STEPS * options.kills + 2
    step_s = shard_s * -(-shards // ranks)
    moments = [rng.uniform(0.0, step_s) for _ in range(options.kills)]
    quiet = run(folder / f"quiet-{ranks}", shards, 1, 0.0, steps, [])
    found = run(folder / f"killed-{ranks}", shards, ranks, shard_s, steps, moments)
    again = (found.computed - shards * steps) / max(1, len(found.reforming_s))
    columns = [f"{ranks:>5}", f"{len(found.reforming_s):>7}"]
    for times in (found.reforming_s, found.joining_s):
        columns += [f"{median(times) / shard_s:>9.2f}", f"{max(times) / shard_s:>6.2f}"] if times else [f"{'-':>16}"]
    equal = found.sha256 == quiet.sha256
    print(*columns, f"{again:>10.2f}", f"{'equal' if equal else 'NOT EQUAL':>10}", flush=True)
    struck = len(found.reforming_s) == options.kills
    return equal and struck and all(taken <= shard_s + SLACK_S for taken in found.reforming_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, 2 or more (default 2,4)")
    parser.add_argument("--shards", type=int, default=4, help="of a batch (default 4)")
    parser.add_argument("--shard-s", type=float, default=1.0, help="seconds that a shard takes (default 1)")
    parser.add_argument("--kills", type=int, default=5, help="for each number of ranks (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (default 0)")
    options = parser.parse_args()
    print(f"{options.shards} shards of {options.shard_s:g} s; in shards, median and most; aim: re-formed in at most 1")
    print(f"{'ranks':>5} {'deaths':>7} {'re-formed':>16} {'joined':>16} {'lost':>10} {'weights':>10}", flush=True)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="unisono-takeover-") as folder:
        well = [measure(Path(folder), options, int(ranks), rng) for ranks in options.ranks.split(",")]
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
