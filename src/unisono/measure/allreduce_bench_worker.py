"""Inside a bench world: every rank runs this; rank 0 prints a JSON record per cell.

    python -m unisono.measure.allreduce_bench_worker SPEC          # SPEC: a WorldSpec as JSON; mpi: under mpirun

A cell: fill the array with values that depend on the rank, meet, time one all-reduce; again until the time is used
up. The slowest rank's time counts. The first result is compared with the answer, element by element.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.comm import allreduce
from unisono.comm.base import Array, Communicator, reduction
from unisono.comm.topology.shared_machine import make_reducer
from unisono.comm.wrappers import Counted
from unisono.environment.os_environ import detect
from unisono.errors import UnisonoError
from unisono.launch.connect import connect, connect_gloo
from unisono.launch.local import run
from unisono.messages.exchanger_orders import Failed
from unisono.messages.packing import pack
from unisono.supervise.children import die_with_parent
from unisono.world import World

_PERIOD = 840
_LEAST, _MOST = 5, 20_000


def pattern(rank: int, size: int, op: str, dtype: np.dtype) -> Array:
    """One period of the input of `rank`: small whole numbers, so that every op is exact in every type."""
    index = np.arange(_PERIOD)
    values = np.where((index + rank) % size == 0, 2, 1) if op == "prod" else (index + 3 * rank) % 7 + 1
    return values.astype(dtype)


def fill(array: Array, period: Array) -> None:
    """Repeats `period` over `array`."""
    whole = len(array) // _PERIOD * _PERIOD
    array[:whole].reshape(-1, _PERIOD)[:] = period
    array[whole:] = period[: len(array) - whole]


def holds(array: Array, period: Array) -> bool:
    whole = len(array) // _PERIOD * _PERIOD
    return bool(
        (array[:whole].reshape(-1, _PERIOD) == period).all() and (array[whole:] == period[: len(array) - whole]).all()
    )


def prepare(
    comm: Communicator, method: str, length: int, spec: dict[str, Any]
) -> tuple[Array, Array, Callable[[], None]]:
    """(input, where the result will be, the call)."""
    dtype, ufunc = np.dtype(spec["dtype"]), reduction(spec["op"])
    if method == "arena":
        reducer = make_reducer(comm, length, dtype)
        return reducer.mine, reducer.result, lambda: reducer.all_reduce(ufunc, comm.timeout_s)
    array = np.empty(length, dtype)
    if method == "native":
        return array, array, lambda: comm.all_reduce(array, spec["op"])
    algorithm = allreduce.ALGORITHMS[method]
    return array, array, lambda: algorithm(comm, array, ufunc)


def cell(comm: Communicator, method: str, length: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Measures one cell; the same record on every rank."""
    counted = Counted(comm)
    source, result, call = prepare(counted, method, length, spec)
    periods = [pattern(rank, comm.size, spec["op"], source.dtype) for rank in range(comm.size)]
    expected = reduction(spec["op"]).reduce(periods, axis=0, dtype=source.dtype)

    def once() -> float:
        fill(source, periods[comm.rank])
        comm.barrier()
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        comm.barrier()  # no rank refills while another still reads
        return took

    once()
    correct = np.array([holds(result, expected)], np.int32)
    comm.all_reduce(correct, "min")
    sent = np.array([counted.sent_bytes], np.int64)
    comm.all_reduce(sent)
    start = time.perf_counter()
    once()
    count = np.array([min(_MOST, max(_LEAST, int(spec["seconds"] / (time.perf_counter() - start))))])
    comm.broadcast(count)
    samples = comm.all_gather(np.array([once() for _ in range(int(count[0]))])).max(axis=0)
    return record(spec, method, length * source.itemsize, samples.tolist(), bool(correct[0]), int(sent[0]))


def record(
    spec: dict[str, Any], method: str, nbytes: int, samples_s: list[float], correct: bool, sent: int
) -> dict[str, Any]:
    """Algorithm bandwidth: bytes of the array per second. Bus bandwidth: times 2(n-1)/n, comparable across n."""
    ranks = spec["ranks"]
    median_s = statistics.median(samples_s)
    bandwidth = nbytes / median_s / 1e9
    text, formula = allreduce.FORMULAS.get(method, ("", None))
    return {
        "transport": spec["transport"],
        "ranks": ranks,
        "algorithm": method,
        "elements": nbytes // np.dtype(spec["dtype"]).itemsize,
        "nbytes": nbytes,
        "dtype": spec["dtype"],
        "op": spec["op"],
        "median_us": median_s * 1e6,
        "p95_us": float(np.percentile(samples_s, 95)) * 1e6,
        "algorithm_gb_per_s": bandwidth,
        "bus_gb_per_s": bandwidth * 2 * (ranks - 1) / ranks,
        "sent_bytes_per_rank": None if formula is None else sent / ranks,
        "formula_bytes_per_rank": None if formula is None else formula(ranks, nbytes),
        "formula": text,
        "correct": correct,
        "repetitions": len(samples_s),
        "samples_us": [sample * 1e6 for sample in samples_s],
    }


def bench(comm: Communicator, spec: dict[str, Any]) -> None:
    for length in spec["lengths"]:
        for method in spec["algorithms"]:
            found = cell(comm, method, length, spec)
            if comm.rank == 0:
                print(json.dumps(found), flush=True)


def main() -> int:
    spec = json.loads(sys.argv[1])
    die_with_parent(os.getppid())
    transport, timeout_s = spec["transport"], spec["timeout_s"]

    def work(world: World) -> None:
        if transport == "gloo":
            with connect_gloo(world.comm) as comm:
                bench(comm, spec)
        else:
            bench(world.comm, spec)

    try:
        if transport == "mpi":
            with connect(detect(), "mpi", timeout_s) as comm:
                bench(comm, spec)
        else:
            run(work, spec["ranks"], timeout_s=timeout_s)
    except UnisonoError as error:
        print(pack(Failed.of(error)).decode(), flush=True)
        if transport == "mpi":
            from unisono.comm.mpi.library import abort

            abort(error.exit_code)  # a rank that is missing would keep MPI from ending
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
