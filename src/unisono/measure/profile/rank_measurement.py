"""What one rank of a profile does: real steps of training, some of them watched.

The one idea: batches that are not measured take turns with those that are, so the cost of measuring is measured in
the same run, and a machine that gets busier meanwhile does not decide.

    unisono.run(lambda world: measure_rank(world, job, options), job.recipe.ranks.count)

Limits: whole batches only: the ragged end of an epoch is left out. Strategy `sync`.
"""

from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from unisono.errors import UnisonoError
from unisono.measure.options import ProfileOptions
from unisono.measure.profile.instrument import Instrument, Span, layers_of, phases_of
from unisono.measure.step_timing import Steps
from unisono.models.base import Model
from unisono.models.chain import Chain
from unisono.strategies.base import NotFinite
from unisono.training.job import Job
from unisono.world import World

WARM_UP = 5
"""Batches that are not counted: memory is allocated in the first one."""
TURN = 20
"""Batches after which it is another part's turn."""


def steps_of(batches: int, parts: int) -> int:
    """How many steps a profile takes in all."""
    return parts * (WARM_UP + batches)


def measure_rank(world: World, job: Job, options: ProfileOptions) -> dict[str, Any]:
    """A record of one rank: seconds of a step, phases, modules, operators, spans."""
    with threadpool_limits(job.recipe.ranks.threads, user_api="blas"):
        instrument = _instrument(job.model(), options)
        model = job.slowed(instrument.model, world.rank)
        # As around the trainer's loop: what matters of an overflow shows in the loss.
        with job.strategy(world.comm, model) as strategy, np.errstate(all="ignore"):
            bench = Steps(world, strategy, job)
            try:
                return _measure(bench, instrument, options.batches)
            except NotFinite as found:
                raise UnisonoError(
                    f"the loss became {found.loss} while the recipe was profiled", hint="lower --lr"
                ) from None


def _measure(bench: Steps, instrument: Instrument, batches: int) -> dict[str, Any]:
    parts = ["", *instrument.light]
    took: dict[str, list[float]] = {part: [] for part in (*parts, instrument.heavy)}
    seen: dict[str, list[Span]] = {part: [] for part in took}
    for part in parts:
        with instrument.watching(part):
            bench.take(WARM_UP)
            instrument.begin(part)
    left = batches
    while left > 0:
        for part in parts:
            with instrument.watching(part):
                took[part] += bench.take(min(left, TURN), seen[part] if part else None)
        left -= TURN
        parts.reverse()
    if "modules" in instrument.light:  # as many steps as of phases, and in turns with them
        instrument.take_off(batches * (undisturbed_s(took["modules"]) - undisturbed_s(took["phases"])))
    with instrument.watching(instrument.heavy):
        bench.take(1)
        instrument.begin(instrument.heavy)
        took[instrument.heavy] += bench.take(batches, seen[instrument.heavy])
    calm, modules = seen["phases"] + instrument.spans("phases"), seen["modules"] + instrument.spans("modules")
    return {
        "plain_s": median(took[""]),
        "overhead": {part: undisturbed_s(took[part]) / undisturbed_s(took[""]) - 1 for part in took if part},
        "phases": phases_of(calm),
        "forward_s": median(ended - begun for key, begun, ended in calm if key == ("forward",)),
        "modules_forward_s": median(forwards_of(modules)),
        "modules": instrument.modules(),
        "operators": instrument.operators(),
        "spans": [["/".join(key), begun, ended] for key, begun, ended in modules],
    }


def undisturbed_s(times_s: list[float]) -> float:
    """The lower quartile: what other programs do to a step makes it longer, never shorter."""
    return float(np.quantile(times_s, 0.25))


def forwards_of(spans: list[Span]) -> list[float]:
    """Of each call of the model: its modules' forwards added up, those that contain others not counted twice."""
    found: list[float] = []
    at = 0
    for number, (key, _, _) in enumerate(spans):
        if key == ("forward",):
            costs = layers_of(spans[at:number])
            found.append(sum(cost.self_s for layer, cost in costs.items() if layer[0] == "forward"))
            at = number
    return found


def _instrument(model: Model, options: ProfileOptions) -> Instrument:
    if isinstance(model, Chain):
        from unisono.measure.profile.numpy_engine import NumpyInstrument

        return NumpyInstrument(model, memory=options.memory, shapes=options.shapes)
    from unisono.measure.profile.torch_engine import TorchInstrument
    from unisono.models.torch.model import TorchModel

    assert isinstance(model, TorchModel)
    return TorchInstrument(model, memory=options.memory, shapes=options.shapes)
