"""bench: how fast is an all-reduce here? Algorithms x sizes x ranks x transports; and the options of `unisono bench`.

The one idea: a *world* (one transport on so many ranks) is one subprocess tree that measures all its cells and prints a
JSON record per cell. This side plans, starts and reads; it never computes. Our own launcher starts shm and gloo worlds,
mpirun starts mpi worlds. `allreduce_bench_worker.py` runs inside. The command line reads names, defaults and help of
options from `BenchOptions`.

    for record in measure(plan(BenchOptions(ranks="2"))): print(record["median_us"])
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from unisono.comm.allreduce import ALGORITHMS
from unisono.comm.base import DTYPES, OPS
from unisono.comm.shm.memory import ShmPlan
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.errors import UnisonoError, UserError, unknown_name
from unisono.launch.connect import installed, require, require_launcher
from unisono.launch.launcher_commands import mpirun, python
from unisono.measure.options import choices, numbers, sizes, words
from unisono.messages.exchanger_orders import Failed
from unisono.messages.packing import unpack
from unisono.os_limits import check_limits, check_temporary_directory
from unisono.resources import available_bytes, readable_bytes
from unisono.supervise.children import Subprocess


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What to measure."""

    ranks: str = "2"
    """Numbers of ranks, separated by commas, such as 2,4,8."""

    sizes: str = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
    """Sizes of the arrays in bytes (KiB, MiB), separated by commas."""

    elements: str = ""
    """Lengths of the arrays in elements instead of --sizes, such as 4096,8192,16384."""

    algorithms: str = "all"
    """naive, ring, tree, doubling, halving, native (the transport's own) and arena (in place, in shared memory)."""

    transports: str = "auto"
    """shm, mpi, gloo, separated by commas; auto takes those that are installed."""

    dtype: str = "float32"
    """float32, float64, float16, int32 or int64."""

    op: str = "sum"
    """sum, max, min or prod."""

    seconds: float = 0.2
    """Time to spend on each cell of the table, roughly; at least 5 repetitions are made, at most 20,000."""

    timeout_s: float = 60.0
    """How long a rank waits for another before it gives up."""

    out: str = ""
    """Directory for bench.csv, bench.json and bench.png; made if it is not there. Nothing is written without it."""


TRANSPORTS = ["shm", "mpi", "gloo"]

METHODS = [*ALGORITHMS, "native", "arena"]
LIBRARY_THREADS = 4
"""Of a rank of MPI or gloo: its own, and those that move messages."""


@dataclass(frozen=True)
class WorldSpec:
    """One world: what its ranks measure."""

    transport: str
    ranks: int
    algorithms: list[str]
    lengths: list[int]
    dtype: str
    op: str
    seconds: float
    timeout_s: float


def plan(options: BenchOptions) -> list[WorldSpec]:
    """The worlds that `options` ask for, or a `UserError`: nothing is started before everything is known to fit."""
    methods = choices(options.algorithms, METHODS, "all-reduce algorithm")
    if "auto" in words(options.transports):
        transports = [name for name in TRANSPORTS if installed(name)]
    else:
        transports = choices(options.transports, TRANSPORTS, "transport")
    for name in transports:
        require(name)
        require_launcher(name)
    if options.op not in OPS:
        raise unknown_name("op", options.op, OPS)
    if options.dtype not in DTYPES[:-1]:
        raise unknown_name("dtype", options.dtype, DTYPES[:-1])
    for name, value in (("--seconds", options.seconds), ("--timeout-s", options.timeout_s)):
        if not 0 < value < inf:
            raise UserError(f"{name} is {value}", hint="give a number above 0")
    itemsize = {"float16": 2, "float32": 4, "int32": 4}.get(options.dtype, 8)
    if options.elements and options.sizes != BenchOptions().sizes:
        raise UserError("--elements and --sizes are both given", hint="give one of them")
    if options.elements:
        lengths = numbers(options.elements, "--elements", least=0)
    else:
        lengths = [_elements(nbytes, itemsize, options.dtype) for nbytes in sizes(options.sizes, "--sizes")]
    counts = numbers(options.ranks, "--ranks")
    check_memory(max(counts), max(lengths) * itemsize, methods)
    check_temporary_directory()
    check_limits(max(counts), threads=1 if transports == ["shm"] else LIBRARY_THREADS)
    return [
        WorldSpec(
            transport,
            ranks,
            [method for method in methods if _possible(transport, method, options.dtype)],
            lengths,
            options.dtype,
            options.op,
            options.seconds,
            options.timeout_s,
        )
        for ranks in counts
        for transport in transports
    ]


def _elements(nbytes: int, itemsize: int, dtype: str) -> int:
    if nbytes % itemsize:
        raise UserError(
            f"--sizes {nbytes}: not a whole number of {dtype}", hint=f"give multiples of {itemsize}, or --elements"
        )
    return nbytes // itemsize


def _possible(transport: str, method: str, dtype: str) -> bool:
    """MPI itself knows no float16; the algorithms over its messages do."""
    return not (transport == "mpi" and method == "native" and dtype == "float16")


def check_memory(ranks: int, nbytes: int, methods: list[str]) -> None:
    """Refuses what would not fit: a rank holds its array, a copy and, for the naive algorithm, those of all ranks."""
    copies = 2 + (ranks if "naive" in methods else 1)
    needed = ranks * (copies * nbytes + 48 * 2**20) + ShmPlan(ranks).nbytes
    if needed > (free := available_bytes()):
        raise UserError(
            f"{ranks} ranks with arrays of {readable_bytes(nbytes)} need about {readable_bytes(needed)} of memory, "
            f"{readable_bytes(free)} are available",
            hint="give fewer --ranks or smaller --sizes" + (", or leave out naive" if copies > 3 else ""),
        )


def measure(worlds: list[WorldSpec]) -> Iterator[dict[str, Any]]:
    """Runs the worlds one after another; a record per cell as it is measured."""
    for world in worlds:
        yield from _run_world(world)


def _run_world(world: WorldSpec) -> Iterator[dict[str, Any]]:
    worker = python("-m", "unisono.measure.allreduce_bench_worker", json.dumps(asdict(world)))
    by_mpi = world.transport == "mpi"
    command = mpirun(world.ranks, worker) if by_mpi else worker
    environment = mpi_environment() if by_mpi else child_environment(threads=1)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise,
        Subprocess(command, environment, stderr=noise.fileno()) as process,
    ):
        for line in process.lines(silence_s=2 * world.timeout_s + 4 * world.seconds + 60):
            record = unpack(line.encode()) if line.startswith("{") else {}
            if isinstance(record, Failed):
                raise record.error()
            if record:
                yield record
        if code := process.wait():
            noise.seek(0)
            raise UnisonoError(
                f"the {world.transport} world of {world.ranks} ranks ended with exit code {code}:\n"
                + noise.read()[-4000:]
            )
