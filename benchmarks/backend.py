"""The backend "unisono" of torch.distributed against gloo, in one interleaved run: ratios, beside those aimed for.

    python benchmarks/backend.py                        # everything, about a quarter of an hour
    python benchmarks/backend.py --jobs r4,all-reduce --rounds 9
    python benchmarks/backend.py --quick                # a smoke run

The jobs are those of `training.py`, as unchanged scripts under torchrun on 2 ranks: `r4`, `ray`, `cnn`, `gpt` with
DistributedDataParallel, `accelerate` and `lightning` on r4's network. `DDP, no exchange` is DistributedDataParallel
that keeps each rank's own gradients: what a backend without any cost would reach. `all-reduce` times tensors of 1 KiB
to 64 MiB, with DeepSpeed's all-reduce in shared memory as a third.

Limits: 2 ranks need 2 idle cores; how many cores others used is printed. Lightning is measured if it is installed,
DeepSpeed if it is installed and compiles (`deepspeed_shm.py`).
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import MappingProxyType

from bystanders import Bystanders
from contenders import take_turns
from peers import Loop, Network, started
from standings import Aim, judge, show_rates
from training import MOST_ROWS, R4, Turns, torch_jobs

from unisono.environment.os_environ import child_environment
from unisono.errors import UnisonoError, unknown_name
from unisono.resources import readable_bytes
from unisono.training.job import load_data

AIMS = {"r4": 4.0, "ray": 2.0, "cnn": 1.0, "gpt": 1.0}
FRAMEWORKS = {"accelerate": 2.5, "lightning": 2.0}
SIZES = [2**power for power in range(10, 27, 2)]
BACKENDS = ("gloo", "unisono")
EMPTY: Mapping[str, Loop] = MappingProxyType({})


def scripts(name: str, turns: Turns) -> None:
    """An unchanged DDP script on a job."""
    recipe, batch, _, _ = torch_jobs()[name]
    recipe = recipe.with_options(engine="torch", batch_size=batch)
    data = load_data(recipe)
    rows = MOST_ROWS.get(name, len(data.train_x))
    network = Network(
        spec=recipe.model.name, shape=list(data.shape), dropout=recipe.model.dropout, optimizer="adam",
        lr=recipe.learning.lr, batch=batch // 2,
    )  # fmt: skip
    print(f"\n{name}: {recipe.model.name}, batch {batch // 2} per rank, 2 ranks, DistributedDataParallel")
    limit = {"DDP, no exchange": Loop("ddp", 2, "none")}
    compare("DDP", "ddp", network, (data.train_x[:rows], data.train_y[:rows]), turns, AIMS[name], limit)


def frameworks(name: str, turns: Turns) -> None:
    """r4's network in the loop of a framework."""
    print(f"\n{name}: r4's network, batch 32 per rank, 2 ranks")
    if not find_spec(name):
        print(f"{name} is not installed: not measured")
        return
    data = load_data(R4)
    network = Network(hidden=[32], normed=True, optimizer="adam", lr=R4.learning.lr, batch=32)
    compare(name, name, network, (data.train_x, data.train_y), turns, FRAMEWORKS[name])


def compare(
    title: str, loop: str, network: Network, data: tuple, turns: Turns, aim: float, limit: Mapping[str, Loop] = EMPTY
) -> None:
    """limit: what no backend can be faster than."""
    loops = {f"{title}, {backend}": Loop(loop, 2, backend) for backend in BACKENDS} | dict(limit)
    bystanders = Bystanders()
    with started(loops, network, *data) as peers:
        rates = take_turns(peers, turns.rounds, turns.seconds)
    show_rates(rates, {}, [])
    print(f"Others used {bystanders.cores():.2f} cores meanwhile.")
    judge(rates, Aim(f"{title}, unisono", f"{title}, gloo", aim), *(Aim(name, f"{title}, gloo") for name in limit))


def all_reduce(turns: Turns) -> None:
    print(f"\nall-reduce of float32, 2 ranks; microseconds (median of {turns.rounds} rounds of all in turns)")
    bystanders = Bystanders()
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(Path(__file__).with_name("backend_worker.py")), json.dumps({"sizes": SIZES, "rounds": turns.rounds}),
    ]  # fmt: skip
    ended = subprocess.run(
        command, env=child_environment(threads=1), capture_output=True, text=True, timeout=900, check=False
    )
    if ended.returncode:
        raise UnisonoError(f"the worker ended with {ended.returncode}: {ended.stderr[-2000:]}")
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    names = list(found["times"])
    others = [name for name in names if name != "unisono"]
    heads = [f"{name:>12}" for name in names] + [f"{name + '/unisono':>18}" for name in others]
    print(f"{'bytes':>10}", *heads, "  bits of gloo")
    for size in SIZES:
        times = {name: median(found["times"][name][str(size)]) for name in names}
        cells = [f"{times[name]:>12,.1f}" for name in names]
        cells += [f"{times[name] / times['unisono']:>17.1f}x" for name in others]
        unequal = [name for name, equal in found["equal"][str(size)].items() if not equal]
        print(f"{readable_bytes(size):>10}", *cells, f"  {'not ' + ', '.join(unequal) if unequal else 'all'}")
    if found["reason"]:
        print(f"DeepSpeed is not measured (pip install deepspeed ninja, in this environment): {found['reason']}")
    print(f"Others used {bystanders.cores():.2f} cores meanwhile.")


JOBS = [*AIMS, *FRAMEWORKS, "all-reduce"]


def run(names: Sequence[str], turns: Turns) -> None:
    for name in names:
        if name not in JOBS:
            raise unknown_name("--jobs", name, JOBS)
    for name in names:
        if name in AIMS:
            scripts(name, turns)
        elif name in FRAMEWORKS:
            frameworks(name, turns)
        else:
            all_reduce(turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default=",".join(JOBS), help=f"some of {', '.join(JOBS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (default 7)")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a turn (default 1.5)")
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of a second: to see that it works")
    options = parser.parse_args()
    turns = Turns(1, 0.1) if options.quick else Turns(options.rounds, options.seconds)
    try:
        run(options.jobs.split(","), turns)
    except UnisonoError as error:
        print(f"backend.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
