"""How much memory a node needs for a run, estimated before it is started: for batch systems, which kill for it.

The one idea: what is large is known exactly (the arena, or a copy of the parameters and their optimizer's vectors for
each rank; the data, once a node), and a rank's program has a usual size; on top comes a reserve.

    estimate_bytes(prepare(Recipe.from_options(data="mnist")), ranks=2)

Limits: what layers keep for their backward is put at as much as the data of a batch takes for each layer, which large
convolutions and attention exceed: give such jobs their --mem yourself.
"""

from dataclasses import replace

from unisono.strategies.arena.state import padded, plan_sections
from unisono.training.job import Job

MIB = 2**20
PROGRAM_BYTES = {"numpy": 120 * MIB, "torch": 400 * MIB}
"""A rank's interpreter with the engine, and MPI or gloo beside it."""
RESERVE = 1.5
STEP_BYTES = 100 * MIB
"""Estimates are rounded up to this."""


def estimate_bytes(job: Job, ranks: int) -> int:
    """Of one node that holds `ranks` of the job's ranks."""
    model, data = job.model(), job.dataset
    if job.spec.on_arena:
        extent = replace(job.extent(undo=True, spare=bool(job.snapshots)), size=ranks)
        vectors = plan_sections(model, job.shared_optimizer, extent).nbytes
    else:
        # Parameters, gradients, what is sent, the optimizer's, a copy for snapshots.
        vectors = ranks * 8 * 4 * padded(model.layout.length)
    layers = max(1, len(model.layout.shapes))
    sample = 4 * max(data.features, data.outputs)
    activations = job.batch_samples * sample * layers
    program = (ranks + 1) * PROGRAM_BYTES[job.recipe.model.engine]  # one more: who supervises, or launches
    whole = program + vectors + 2 * data.nbytes + activations  # twice: data are read, then scaled
    return -(-int(RESERVE * whole) // STEP_BYTES) * STEP_BYTES
