"""unisono's training against torch's, in one interleaved run: ratios, beside those that were aimed for.

    python benchmarks/training.py                     # everything, about a quarter of an hour
    python benchmarks/training.py --quick             # a smoke run of under half a minute
    python benchmarks/training.py --jobs r4,shards --rounds 11 --seconds 2

The jobs, on made-up rows but for r2:

- `r4`: 50,000 x 512, 20 classes, bn-mlp 512-32-20, Adam 0.001, batch 32 per rank, shards = ranks; against torchrun DDP,
  a one-process loop with DataLoader, and the fastest in-memory loop of torch
- `r2`: MNIST, sigmoid mlp:128,64, momentum 0.9, global batch 512, 8 shards; against the in-memory loop
- `shards`: what 8 shards cost: r4 at global batch 256, in 8 shards and in as many as there are ranks
- `memory`: the proportional set size of 1 and of 8 ranks, and how many copies of parameters and state that is
- `torch`: torch modules in the arena against DDP and Accelerate: r4 and an MLP with dropout, shards = ranks; a CNN and
  a small GPT, 8 shards; the other number of shards beside. One of them alone: `torch-r4`, `torch-ray`, `torch-cnn`,
  `torch-gpt`
- `alignment`: what it costs that every array begins on a 64-byte border, for the jobs of `torch` and for odd shapes
- `safety`: what it costs that any step can be redone after the death of a rank: undo copies and marks

Contenders take turns; a ratio is that of the medians over the rounds. How torch's loops are written is in
`torch_loops.py`, what is timed of ours in `ours.py`. Without torch its rows say "not installed".

Limits: 2 ranks need 2 idle cores. Whatever else runs hurts those that use both more than those that use one; how many
cores others used is printed, and above a tenth of one the run says little. MNIST is looked for in ../shared/data/mnist,
seen from the repository; without it r2 has made-up rows of the same shape.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import final

import numpy as np
from bystanders import Bystanders
from contenders import Contender, Rates, take_turns
from ours import Ours
from peers import Loop, Network, started
from pss import footprint
from standings import Aim, judge, show_rates

from unisono.errors import UnisonoError, UserError, unknown_name
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.resources import readable_bytes, usable_cores
from unisono.training.job import Job, load_data, prepare

MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist"
FASHION = MNIST.with_name("fashion-mnist")
R4 = Recipe.from_options(
    model="bn-mlp:32",
    data="synthetic:classes=20,rows=50000,features=512,test_rows=0",
    optimizer="adam",
    lr=0.001,
)
LOADER, MEMORY, ACCELERATE = "torch, DataLoader", "torch, in memory", "Accelerate, 2 ranks"
MOST_ROWS = {"cnn": 4096, "gpt": 256}
TORCH = ("r4", "ray", "cnn", "gpt")
BARE = "unisono, 1 rank, without undo"


@final
@dataclass(frozen=True)
class Turns:
    """How often and how long everybody trains, the warm-up apart."""

    rounds: int
    seconds: float


def ours(ranks: int, shards: int) -> str:
    return f"unisono, {_count(ranks, 'rank')}, {_count(shards, 'shard')}"


def ddp(ranks: int) -> str:
    return f"torchrun DDP, {_count(ranks, 'rank')}"


def r4(turns: Turns) -> None:
    print("\nr4: bn-mlp 512-32-20, 50,000 rows, Adam, batch 32 per rank")
    jobs = _prepare(*(R4.with_options(ranks=ranks, shards=ranks, batch_size_per_rank=32) for ranks in (1, 2)))
    network = Network(hidden=[32], activation="relu", normed=True, optimizer="adam", lr=R4.learning.lr, batch=32)
    loops = {ddp(1): Loop("ddp", ranks=1), ddp(2): Loop("ddp", ranks=2), LOADER: Loop("loader"), MEMORY: Loop("memory")}
    rates = _compare(jobs, turns, network, loops, [Ours(BARE, jobs[0], undo=False)])
    judge(
        rates,
        Aim(ours(2, 2), ddp(2), 12),
        Aim(ours(2, 2), LOADER, 7),
        Aim(ours(2, 2), MEMORY, 2.8),
        Aim(ours(1, 1), MEMORY, 2.2),
        Aim(BARE, MEMORY),
        Aim(ours(2, 2), ours(1, 1), 1.4),
    )


def r2(turns: Turns) -> None:
    print("\nr2: sigmoid mlp 784-128-64-10, MNIST, momentum 0.9, global batch 512")
    recipe = _r2()
    jobs = _prepare(*(recipe.with_options(ranks=ranks) for ranks in (1, 2)))
    network = Network(
        hidden=[128, 64], activation="sigmoid", normed=False, optimizer="momentum", lr=recipe.learning.lr, batch=512
    )
    rates = _compare(jobs, turns, network, {MEMORY: Loop("memory")})
    judge(rates, Aim(ours(2, 8), ours(1, 8), 1.6), Aim(ours(2, 8), MEMORY), Aim(ours(1, 8), MEMORY))


def torch_modules(turns: Turns, names: Sequence[str] = TORCH) -> None:
    """The same torch module in the arena, under DDP and under Accelerate."""
    jobs = torch_jobs()
    for name in names:
        plain, batch, usual, least = jobs[name]
        print(f"\ntorch-{name}: {plain.model.name}, global batch {batch} on 2 ranks")
        recipe = plain.with_options(engine="torch", batch_size=batch)
        variants = [recipe.with_options(ranks=ranks, shards=shards) for ranks, shards in ((1, 2), (2, 2), (2, 8))]
        prepared = _prepare(*variants, rows=MOST_ROWS.get(name, 0))
        data = prepared[0].dataset
        network = Network(
            spec=recipe.model.name, shape=list(data.shape), dropout=recipe.model.dropout, optimizer="adam",
            lr=recipe.learning.lr,
            batch=batch // 2,
        )  # fmt: skip
        peers = {ddp(2): Loop("ddp", ranks=2), ACCELERATE: Loop("accelerate", ranks=2)}
        rates = _compare(prepared, turns, network, peers)
        judge(
            rates,
            Aim(ours(2, usual), ddp(2), least),
            Aim(ours(2, usual), ACCELERATE, least),
            Aim(ours(2, 8 if usual == 2 else 2), ddp(2)),
            Aim(ours(2, 2), ours(1, 2)),
            Aim(ours(2, 2), ours(2, 8)),
        )


def torch_jobs() -> dict[str, tuple[Recipe, int, int, float]]:
    """By name: the recipe, the global batch, its usual number of shards, how many times DDP is aimed for."""
    fashion = {"data": "fashion-mnist", "data_dir": str(FASHION)}
    if not FASHION.is_dir():
        fashion = {"data": "synthetic:classes=10,rows=20000,features=784,test_rows=0", "data_dir": ""}
        print("Note: Fashion-MNIST is not in ../shared/data/fashion-mnist; made-up rows instead.")
    return {
        "r4": (R4, 64, 2, 3.5),
        "ray": (
            Recipe.from_options(model="mlp:512,512", dropout=0.25, optimizer="adam", lr=0.001, **fashion),
            64,
            2,
            2.5,
        ),
        "cnn": (Recipe.from_options(model="cnn:16,32", optimizer="adam", lr=0.001, **fashion), 256, 8, 1.0),
        "gpt": (
            Recipe.from_options(
                model="gpt:layers=5,heads=4,width=128",
                data="synthetic-text:characters=40000,context=128",
                optimizer="adam",
                lr=0.001,
            ),
            64,
            8,
            1.0,
        ),
    }


def alignment(turns: Turns) -> None:
    print(
        "\nalignment: the ratio is what it costs that every array begins on a 64-byte border; torch, 2 ranks, 8 shards"
    )
    odd = Recipe.from_options(
        model="mlp:64,32", data="synthetic:classes=5,rows=20000,features=13,test_rows=0", optimizer="adam"
    )
    jobs = {name: (recipe, batch) for name, (recipe, batch, *_) in torch_jobs().items()} | {"13 features": (odd, 24)}
    for name, (recipe, batch) in jobs.items():
        variant = recipe.with_options(engine="torch", batch_size=batch, ranks=2, shards=8)
        (job,) = _prepare(variant, rows=MOST_ROWS.get(name, 0))
        contenders = [Ours(f"{name}, NumPy's own memory", job, on_borders=False), Ours(name, job)]
        bystanders, rates = Bystanders(), take_turns(contenders, turns.rounds, turns.seconds)
        show_rates(rates, {}, [])
        print(f"Others used {bystanders.cores():.2f} cores meanwhile.")
        judge(rates, Aim(contenders[0].name, contenders[1].name, 1.01, at_most=True))


def _r2() -> Recipe:
    recipe = load("r2", {"shards": 8, "data_dir": str(MNIST)})
    if MNIST.is_dir():
        return recipe
    print("Note: MNIST is not in ../shared/data/mnist; made-up rows of the same shape instead.")
    return recipe.with_options(data="synthetic:classes=10,rows=60000,features=784,test_rows=0")


def shards(turns: Turns) -> None:
    print("\nshards: r4 at global batch 256; the ratio is what 8 shards cost")
    recipes = [R4.with_options(ranks=ranks, shards=count, batch_size=256) for ranks in (1, 2) for count in (ranks, 8)]
    rates = _compare(_prepare(*recipes), turns)
    judge(
        rates,
        Aim(ours(2, 2), ours(2, 8), 1.3, at_most=True),
        Aim(ours(1, 1), ours(1, 8), 1.3, at_most=True),
    )


def memory(turns: Turns) -> None:
    print("\nmemory: mlp 2048-2048-2048-10, Adam, 8 shards; summed over the ranks")
    print(
        f"{'ranks':>5} {'PSS':>11} {'grown by':>11} {'gradients':>11} {'one copy':>11}   copies of parameters and state"
    )
    data = "synthetic:rows=1024,features=2048,test_rows=0"
    recipe = Recipe.from_options(model="mlp:2048,2048", data=data, shards=8, batch_size=64, optimizer="adam")
    for ranks in (1, 8):
        for undo in (False, True):
            found = footprint(prepare(recipe.with_options(ranks=ranks)), undo=undo)
            sizes = (found.pss, found.grown, found.gradients, found.one_copy)
            print(f"{ranks:>5} " + " ".join(f"{readable_bytes(size):>11}" for size in sizes), end="   ")
            note = "with that from which a step is redone" if undo else f"a replica per rank: {ranks}"
            print(f"{found.copies:.2f} ({note})", flush=True)


def safety(turns: Turns) -> None:
    print("\nsafety: the ratio is what it costs that a step can be redone, on 2 ranks")
    recipes = {"R4": (R4.with_options(shards=2, batch_size_per_rank=32), 1.25), "R2": (_r2(), 1.1)}
    for name, (recipe, most) in recipes.items():
        (job,) = _prepare(recipe.with_options(ranks=2))
        contenders = [Ours(f"{name} job, without undo", job, undo=False), Ours(f"{name} job", job)]
        bystanders, rates = Bystanders(), take_turns(contenders, turns.rounds, turns.seconds)
        show_rates(rates, {}, [])
        print(f"Others used {bystanders.cores():.2f} cores meanwhile.")
        judge(rates, Aim(contenders[0].name, contenders[1].name, most, at_most=True))


JOBS = {
    "r4": r4, "r2": r2, "shards": shards, "memory": memory, "safety": safety, "torch": torch_modules,
    "alignment": alignment,
}  # fmt: skip
PARTS = {f"torch-{name}": partial(torch_modules, names=[name]) for name in TORCH}


def _prepare(*recipes: Recipe, rows: int = 0) -> list[Job]:
    """The jobs, all on the data of the first, without its test part: evaluation is not measured. rows: no more than
    these, for a turn is two epochs at least."""
    data = load_data(recipes[0])
    data = replace(data, test_x=data.test_x[:0], test_y=data.test_y[:0])
    if rows:
        data = replace(data, train_x=data.train_x[:rows], train_y=data.train_y[:rows])
    return [prepare(recipe, data) for recipe in recipes]


def _compare(
    jobs: Sequence[Job],
    turns: Turns,
    network: Network | None = None,
    loops: Mapping[str, Loop] = MappingProxyType({}),
    more: Sequence[Contender] = (),
) -> Rates:
    """Everybody's turns, and the table of them. loops: those of torch, by the names of the contenders."""
    contenders: list[Contender] = [Ours(ours(job.recipe.ranks.count, job.plan.shards), job) for job in jobs] + list(
        more
    )
    data, bystanders = jobs[0].dataset, Bystanders()
    with ExitStack() as stack:
        if network is not None and find_spec("torch"):
            contenders += stack.enter_context(started(loops, network, data.train_x, data.train_y))
        rates = take_turns(contenders, turns.rounds, turns.seconds)
    absent = [name for name in loops if name not in rates]
    show_rates(rates, {contender.name: contender.note for contender in contenders}, absent)
    print(f"Others used {bystanders.cores():.2f} cores meanwhile.")
    return rates


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default=",".join(JOBS), help=f"some of {', '.join(JOBS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default 7)")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a turn (default 1.5)")
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of a second: to see that it works")
    options = parser.parse_args()
    turns = Turns(1, 0.1) if options.quick else Turns(options.rounds, options.seconds)
    try:
        run(options.jobs.split(","), turns)
    except UnisonoError as error:
        print(f"training.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run(names: Sequence[str], turns: Turns) -> None:
    for name in names:
        if name not in JOBS | PARTS:
            raise unknown_name("--jobs", name, JOBS | PARTS)
    if turns.rounds < 1 or not 0 < turns.seconds <= 60:
        raise UserError(
            f"--rounds {turns.rounds} --seconds {turns.seconds:g}", hint="give 1 round or more, of up to 60 s"
        )
    torch = f"torch {version('torch')}" if find_spec("torch") else "torch: not installed"
    rounds = f"{_count(turns.rounds, 'round')} of {turns.seconds:g} s"
    print(f"{usable_cores()} cores; NumPy {np.__version__}, {torch}; {rounds}")
    for name in names:
        (JOBS | PARTS)[name](turns)


if __name__ == "__main__":
    main()
