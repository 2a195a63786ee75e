"""A parameter server as one writes it with mpi4py: a probe loop at the masters, buffer messages; `staleness.py`'s peer.

    mpirun -n 3 python benchmarks/parameter_server.py rows.npz 1 16 2 ask  # data, masters, batch, epochs, way -> JSON

Masters own parts of the parameters. A worker computes a gradient on its copy, sends each master its part without
blocking, asks each master for new parameters, loads its next batch meanwhile, and waits for all of them. A master
probes for any worker, receives, subtracts learning rate x gradient, and answers who asks: the reference system's scheme
(`ask`). `tight` is the best that can be made of it: a push is a question, too, and half the messages are gone. The
network is unisono's own (sigmoid 784-128-64-10), so that only the exchange is compared, and there is one message for
each push and master, not one for each layer.

Limits: the learning rate is divided by the workers, nothing else is done about staleness.
"""

import json
import sys
import time

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

from unisono.models.base import Model
from unisono.models.nets import build
from unisono.strategies.asynchronous.options import cut

LR, PUSH, ASK, ANSWER = np.float32(0.5), 1, 2, 3


def serve(comm: MPI.Comm, params: np.ndarray, pushes: int, rate: np.float32, *, asked: bool) -> None:
    """Answers whoever asks (or has pushed), until all pushes came."""
    gradient, empty, status = np.empty_like(params), np.empty(0, np.float32), MPI.Status()
    for _ in range(2 * pushes if asked else pushes):
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker, pushed = status.Get_source(), status.Get_tag() == PUSH
        comm.Recv(gradient if pushed else empty, worker, status.Get_tag())
        if pushed:
            gradient *= rate
            np.subtract(params, gradient, out=params)
        if not pushed or not asked:
            comm.Send(params, worker, ANSWER)


def work(
    comm: MPI.Comm,
    parts: list[tuple[int, int]],
    model: Model,
    data: tuple[np.ndarray, ...],
    batch: int,
    *,
    asks: bool,
) -> None:
    """Pushes each batch of this worker's share once."""
    x, y, params, row = data
    empty = np.empty(0, np.float32)
    order = np.random.default_rng(comm.rank).permutation(len(x))

    def load(start: int) -> tuple[np.ndarray, np.ndarray]:
        rows = order[start : start + batch]
        return x[rows][None], y[rows][None]

    loaded = load(0)
    for start in range(0, len(x), batch):
        model.loss_and_grad(*loaded, row, 1.0 / loaded[0].shape[1])
        leaving = [comm.Isend(row[0, low:high], master, PUSH) for master, (low, high) in enumerate(parts)]
        if asks:
            leaving += [comm.Isend(empty, master, ASK) for master in range(len(parts))]
        arriving = [comm.Irecv(params[low:high], master, ANSWER) for master, (low, high) in enumerate(parts)]
        if start + batch < len(x):
            loaded = load(start + batch)
        MPI.Request.Waitall(arriving + leaving)


def main() -> None:
    rows, masters, batch, epochs = sys.argv[1], *map(int, sys.argv[2:5])
    asks = sys.argv[5] == "ask"
    comm = MPI.COMM_WORLD
    with np.load(rows) as file:
        x, y = file["x"], file["y"]
    model = build("mlp:128,64", x.shape[1], 10, "sigmoid")
    params, row = np.zeros(model.layout.length, np.float32), np.zeros((1, model.layout.length), np.float32)
    model.init(params, np.zeros(0, np.float32), np.random.default_rng(0))
    model.bind(params, np.zeros(0, np.float32))
    parts, workers = cut(model.layout.sizes, masters), comm.size - masters
    share = np.array_split(np.arange(len(x)), workers)
    pushes = sum(-(-len(rows) // batch) for rows in share)
    mine = slice(0) if comm.rank < masters else share[comm.rank - masters]
    own_x, own_y = x[mine], y[mine]  # copies: not part of what is timed
    times = []
    for _ in range(epochs + 1):  # the first one warms up
        comm.Barrier()
        begun = time.perf_counter()
        if comm.rank < masters:
            low, high = parts[comm.rank]
            serve(comm, params[low:high], pushes, LR / np.float32(workers), asked=asks)
        else:
            work(comm, parts, model, (own_x, own_y, params, row), batch, asks=asks)
        comm.Barrier()
        times.append(time.perf_counter() - begun)
    if comm.rank == 0:
        print(json.dumps({"samples_per_s": epochs * len(x) / sum(times[1:])}))


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
