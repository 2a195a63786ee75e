"""All-reduce in shared memory against MPI Allreduce and gloo, in one interleaved run, as ratios.

    python benchmarks/allreduce.py                       # 2 ranks, 1 KiB to 64 MiB
    python benchmarks/allreduce.py --ranks 8 --rounds 15

All contenders run in the same processes, started once by mpirun, in turns. A turn is a few calls: fill the input, meet
at an MPI barrier, call; the slowest rank's time counts, and the median of the turn. What is printed is the median over
the turns, the ratio of these medians, and the middle half of the ratios of single turns. The peers are called directly,
with no layer of ours in between:

- `mpi`: MPI_Allreduce from a send to a receive buffer;   `mpi in place`: the same with MPI_IN_PLACE
- `gloo`: torch.distributed.all_reduce on a CPU tensor
- `arena`: unisono's in-place reduction; inputs are written to the arena, the result is read there
- `shm`: unisono's communicator with copies in and out, as a drop-in for MPI in place
- `floor`: what no all-reduce can beat: the sums alone, on private arrays, without sharing or waiting

Needs the extras `mpi` and `torch`; without torch the gloo column is left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

KIB, MIB = 1024, 1024 * 1024
SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]


def contenders(nbytes: int) -> dict[str, tuple[np.ndarray, Callable[[], np.ndarray]]]:
    """name -> (input buffer, a call that reduces it and gives the result)."""
    from mpi4py import MPI

    from unisono.arena.reduction_tree import chunk_bounds, combine
    from unisono.comm.mpi.communicator import world
    from unisono.comm.shm.communicator import ShmCommunicator
    from unisono.comm.topology.shared_machine import make_reducer

    length = nbytes // 4
    inputs = [np.empty(length, np.float32) for _ in range(4)]
    output = np.empty(length, np.float32)
    base = world(60.0)
    shm = ShmCommunicator.over(base)
    reducer = make_reducer(shm, length, np.dtype(np.float32))

    def mpi() -> np.ndarray:
        MPI.COMM_WORLD.Allreduce(inputs[0], output)
        return output

    def mpi_in_place() -> np.ndarray:
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, inputs[1])
        return inputs[1]

    def arena() -> np.ndarray:
        reducer.all_reduce(np.add, 60.0)
        return reducer.result

    low, high = chunk_bounds(length, base.size, base.rank)
    private = [np.ones(high - low, np.float32) for _ in range(base.size)]

    def floor() -> np.ndarray:
        combine(private, private[0], np.add)
        return expected

    expected = np.full(1, base.size * (base.size + 1) / 2, np.float32)  # nothing to check: nothing was reduced

    def native() -> np.ndarray:
        shm.all_reduce(inputs[2])
        return inputs[2]

    table = {
        "mpi": (inputs[0], mpi),
        "mpi in place": (inputs[1], mpi_in_place),
        "arena": (reducer.mine, arena),
        "shm": (inputs[2], native),
        "floor": (private[base.rank], floor),
    }
    if find_spec("torch"):
        import torch
        import torch.distributed as dist

        tensor = torch.from_numpy(inputs[3])

        def gloo() -> np.ndarray:
            dist.all_reduce(tensor)
            return inputs[3]

        table["gloo"] = (inputs[3], gloo)
    return table


def worker(sizes: list[int], rounds: int) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if find_spec("torch"):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        port = comm.bcast(_free_port() if comm.rank == 0 else None)
        store = dist.TCPStore("127.0.0.1", port, comm.size, comm.rank == 0)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    expected = comm.size * (comm.size + 1) / 2
    for nbytes in sizes:
        table = contenders(nbytes)
        times: dict[str, list[float]] = {name: [] for name in table}
        # Several calls in a row, as a training loop makes them: after another contender the first finds cold caches.
        calls = 50 if nbytes <= 64 * KIB else 12 if nbytes <= MIB else 3
        names = list(table)
        for turn in range(rounds + 1):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                source, call = table[name]
                took = np.empty(calls)
                for index in range(calls):
                    source.fill(comm.rank + 1)
                    comm.Barrier()
                    start = time.perf_counter()
                    result = call()
                    took[index] = time.perf_counter() - start
                    assert result[0] == result[-1] == expected, (name, nbytes, result[0], expected)
                    comm.Barrier()  # nobody refills while another still reads
                comm.Allreduce(MPI.IN_PLACE, took, MPI.MAX)
                if turn:
                    times[name].append(float(np.median(took)))
        if comm.rank == 0:
            print("RECORD " + json.dumps({"nbytes": nbytes, "times": times}), flush=True)


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25, help="turns of each contender (default 25)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.sizes, options.rounds)
        return

    from unisono.environment.os_environ import mpi_environment
    from unisono.launch.launcher_commands import mpirun

    script = [
        os.path.abspath(__file__),
        "--worker",
        "--rounds",
        str(options.rounds),
        "--sizes",
        *map(str, options.sizes),
    ]
    command = mpirun(options.ranks, [sys.executable, *script])
    print(f"{options.ranks} ranks on {os.cpu_count()} cores; medians in microseconds, then how many times faster")
    print(f"{'bytes':>10} {'mpi':>9} {'mpi inpl':>9} {'gloo':>9} {'arena':>9} {'shm':>9} {'floor':>9}", end="   ")
    print(f"{'arena/mpi':>9} {'/mpi inpl':>9} {'/gloo':>9} {'shm/mpi':>9} {'/mpi inpl':>9}", end=" ")
    print(f"{'floor/mpi':>9}  spread of arena/mpi")
    with subprocess.Popen(command, env=mpi_environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("RECORD "):
                show(**json.loads(line.removeprefix("RECORD ")))
            else:
                print(line, end="")
    sys.exit(process.returncode)


def show(nbytes: int, times: dict[str, list[float]]) -> None:
    middle = {name: statistics.median(samples) for name, samples in times.items()}
    columns = ["mpi", "mpi in place", "gloo", "arena", "shm", "floor"]
    print(
        f"{nbytes:>10} " + " ".join(f"{middle[name] * 1e6:9.1f}" if name in middle else " " * 9 for name in columns),
        end="   ",
    )
    pairs = [("arena", "mpi"), ("arena", "mpi in place"), ("arena", "gloo"), ("shm", "mpi"), ("shm", "mpi in place")]
    pairs.append(("floor", "mpi"))
    print(
        " ".join(f"{middle[peer] / middle[ours]:8.2f}x" if peer in middle else " " * 9 for ours, peer in pairs),
        end="  ",
    )
    ratios = sorted(peer / ours for peer, ours in zip(times["mpi"], times["arena"], strict=True))
    print(f"{ratios[len(ratios) // 4]:.1f}-{ratios[3 * len(ratios) // 4]:.1f}x", flush=True)


if __name__ == "__main__":
    main()
