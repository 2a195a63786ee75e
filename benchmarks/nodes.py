"""Two machines with one rank each, on a slow network: sync, DDP over gloo and local SGD, side by side.

    python benchmarks/nodes.py                              # R4, R2 and Ray jobs; 1 Gbit/s, about 1 ms; minutes
    python benchmarks/nodes.py r4 --rounds 1 --rate 10gbit --delay 0

Machines are network name spaces (root, `ip`, `tc`; for the delay `iptables`); their cables carry 1 Gbit/s by a token
bucket, and every packet is held back on arrival, so that a question and its answer take about a millisecond. Contenders
take turns in the same two processes; the table has medians over the turns. Bytes are those that the first machine's
interface sent, with all headers, a step; beside them, how many times the parameters that is.

Data are made up, with the shapes of the jobs: they do not matter for speed.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import tests_path  # noqa: F401

from support.cluster.namespaces import REASON, Net
from unisono.environment.os_environ import child_environment

HERE = Path(__file__).parent

IMAGES = "synthetic:classes=10,rows={rows},features=784,test_rows=10"
JOBS: dict[str, dict[str, Any]] = {
    "r4": {
        "rows": 9984,
        "recipe": {
            "model": "bn-mlp:32", "data": "synthetic:classes=20,rows=9984,features=512,test_rows=10",
            "optimizer": "adam", "lr": 0.001, "batch_size_per_rank": 32, "shards": 2, "epochs": 4,
        },
    },
    "r2": {
        "rows": 20480,
        "recipe": {
            "model": "mlp:128,64", "data": IMAGES.format(rows=20480), "activation": "sigmoid", "optimizer": "momentum",
            "lr": 0.1, "batch_size": 512, "shards": 8, "epochs": 4,
        },
    },
    "ray": {
        "rows": 3200,
        "recipe": {
            "model": "mlp:512,512", "data": IMAGES.format(rows=3200), "dropout": 0.25, "optimizer": "adam", "lr": 0.001,
            "batch_size": 64, "shards": 2, "epochs": 4,
        },
    },
}  # fmt: skip
AIM = 1.2
"""sync against DDP on the R4 job."""
MOST_BYTES = 2.1
"""Times the parameters, in both directions together."""


def run_job(name: str, rounds: int, rate: str, delay_ms: float) -> dict[str, list[dict[str, float]]]:
    """The turns of each contender."""
    with Net(2) as net:
        if rate != "none":
            net.slow(rate)
        if delay_ms:
            for node in range(2):
                helper = net.start(
                    node, [sys.executable, str(HERE / "delay.py"), str(delay_ms)], dict(os.environ), HERE
                )
                assert helper.stdout is not None
                if helper.stdout.readline() != "ready\n":
                    sys.exit(f"the delay could not be set up: {helper.communicate()[1]}")
        asked = JOBS[name] | {"rounds": rounds}
        jobs = []
        for rank in range(2):
            who = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
            where = {"MASTER_ADDR": net.address(0), "MASTER_PORT": 29500}
            environment = child_environment(1) | {key: str(value) for key, value in (who | where).items()}
            words = [sys.executable, str(HERE / "nodes_worker.py"), json.dumps(asked)]
            jobs.append(net.start(rank, words, environment, HERE))
        said, trouble = jobs[0].communicate(timeout=600)
        if jobs[0].returncode:
            sys.exit(trouble)
    turns: dict[str, list[dict[str, float]]] = defaultdict(list)
    for line in said.splitlines():
        turn = json.loads(line)
        if "round_trip_s" in turn:
            print(f"\na message of a byte and its answer take {1000 * turn['round_trip_s']:.2f} ms (TCP)")
            continue
        turns[turn.pop("contender")].append(turn)
    return turns


def show(name: str, turns: dict[str, list[dict[str, float]]]) -> bool:
    """The table of a job; whether its aims are met."""
    recipe = JOBS[name]["recipe"]
    size = turns["sync"][0]["parameter_bytes"]
    print(f"\n{name}: {recipe['model']}, {size / 1e3:,.0f} kB of parameters, {recipe['shards']} shards")
    print(f"{'':8}{'samples/s':>12}{'(least to most)':>24}{'x DDP':>8}{'sent kB a step':>16}{'x parameters':>14}")
    rates = {who: [turn["samples_per_s"] for turn in found] for who, found in turns.items()}
    for who, found in rates.items():
        sent = median(turn["sent_bytes_per_step"] for turn in turns[who])
        spread = f"({min(found):,.0f} to {max(found):,.0f})"
        ratio = median(mine / peer for mine, peer in zip(found, rates["ddp"], strict=True))
        print(f"{who:8}{median(found):12,.0f}{spread:>24}{ratio:8.2f}{sent / 1e3:16,.1f}{sent / size:14.2f}")
    ours = median(turn["sent_bytes_per_step"] for turn in turns["sync"])
    ratio = median(mine / peer for mine, peer in zip(rates["sync"], rates["ddp"], strict=True))
    met = 2 * ours / size <= MOST_BYTES and (name != "r4" or ratio >= AIM)
    aims = f"sync sends {2 * ours / size:.2f} times the parameters in both directions (aim: {MOST_BYTES} at most)"
    print(aims + (f"; {ratio:.2f} times DDP (aim: {AIM})" if name == "r4" else "") + (": met" if met else ": NOT met"))
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []], default=[], help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender (default 3)")
    parser.add_argument("--rate", default="1gbit", help="of the cables, or none (default 1gbit)")
    parser.add_argument("--delay", type=float, default=0.35, help="ms a packet is held back (default 0.35)")
    options = parser.parse_args()
    if REASON:
        sys.exit(f"benchmarks/nodes.py {REASON}")
    print(f"2 nodes x 1 rank, {options.rate}, packets held back {options.delay:g} ms, {options.rounds} turns each")
    met = [show(name, run_job(name, options.rounds, options.rate, options.delay)) for name in options.jobs or JOBS]
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
