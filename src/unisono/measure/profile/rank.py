"""What one rank of a profile does: real steps of training, some of them watched.

The one idea: batches that nobody watches take turns with those that are watched, so what looking costs is measured in
the same run, and a machine that gets busier meanwhile does not decide.

    unisono.run(lambda world: measure_rank(world, job, options), job.recipe.ranks)

Limits: whole batches only: the ragged end of an epoch is left out. Strategy `sync`.
"""

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias, final

import numpy as np
from threadpoolctl import threadpool_limits

from unisono.data.loader import Group
from unisono.errors import UnisonoError
from unisono.measure.profile.instrument import Instrument
from unisono.measure.profile.options import ProfileOptions
from unisono.measure.profile.spans import Span, layers_of, phases_of
from unisono.models.base import Model
from unisono.models.chain import Chain
from unisono.strategies.base import Load, NotFinite, Strategy, Trace
from unisono.train.job import Job
from unisono.train.trainer import Learner
from unisono.train.walk import Walk
from unisono.world import World

WARM_UP = 5
"""Batches that are not counted: memory is allocated in the first one."""
TURN = 10
"""Batches after which it is another part's turn."""

Places: TypeAlias = Iterator[tuple[int, int, int]]


def steps_of(batches: int, parts: int) -> int:
    """How many steps a profile takes in all."""
    return parts * (WARM_UP + batches)


def measure_rank(world: World, job: Job, options: ProfileOptions) -> dict[str, Any]:
    """A record of one rank: seconds of a step, phases, modules, operators, spans."""
    with threadpool_limits(job.recipe.threads, user_api="blas"):
        instrument = _instrument(job.model(), options)
        model = job.slowed(instrument.model, world.rank)
        # As around the trainer's loop: what matters of an overflow shows in the loss.
        with job.strategy(world.comm, model) as strategy, np.errstate(all="ignore"):
            bench = _Bench(world, strategy, job)
            try:
                return _measure(bench, instrument, options.batches)
            except NotFinite as found:
                raise UnisonoError(
                    f"the loss became {found.loss} while the recipe was profiled", hint="lower --lr"
                ) from None


def _measure(bench: "_Bench", instrument: Instrument, batches: int) -> dict[str, Any]:
    parts = ["", *instrument.light]
    took: dict[str, list[float]] = {part: [] for part in (*parts, instrument.heavy)}
    seen: dict[str, list[Span]] = {part: [] for part in took}
    for part in parts:
        with instrument.watching(part):
            bench.steps(WARM_UP)
            instrument.begin(part)
    left = batches
    while left > 0:
        for part in parts:
            with instrument.watching(part):
                took[part] += bench.steps(min(left, TURN), seen[part] if part else None)
        left -= TURN
        parts.reverse()
    with instrument.watching(instrument.heavy):
        bench.steps(1)
        instrument.begin(instrument.heavy)
        took[instrument.heavy] += bench.steps(batches, seen[instrument.heavy])
    calm, modules = seen["phases"] + instrument.spans("phases"), seen["modules"] + instrument.spans("modules")
    return {
        "plain_s": median(took.pop("")),
        "watched_s": {part: median(found) for part, found in took.items()},
        "phases": phases_of(calm),
        "forward_s": median(ended - begun for key, begun, ended in calm if key == ("forward",)),
        "modules_forward_s": median(forwards_of(modules)),
        "modules": instrument.modules(),
        "operators": instrument.operators(),
        "spans": [["/".join(key), begun, ended] for key, begun, ended in modules],
    }


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


@final
class _Bench:
    """Steps of one rank, one after the other."""

    def __init__(self, world: World, strategy: Strategy, job: Job) -> None:
        self._world, self._strategy = world, strategy
        walk = Walk(job.plan.steps_per_epoch, job.recipe.epochs)
        self._learner = Learner(strategy, job, walk, world.report)
        self._places = _whole_batches(walk)

    def steps(self, count: int, spans: list[Span] | None = None) -> list[float]:
        """Seconds of each; all ranks begin together. spans: where to note what happens outside the model."""
        self._world.comm.barrier()

        def note(what: str, begun: float, ended: float) -> None:
            assert spans is not None
            spans.append(((what,), begun, ended))

        trace = self._strategy.trace = None if spans is None else note
        return [self._step(trace) for _ in range(count)]

    def _step(self, trace: Trace | None) -> float:
        batch = self._learner.batch(*next(self._places))._replace(shares=False)
        if trace is not None:
            batch = batch._replace(load=_timed(batch.load, trace))
        begun = perf_counter()
        self._strategy.step(batch)
        ended = perf_counter()
        if trace is not None:
            trace("step", begun, ended)
        return ended - begun


def _timed(load: Load, trace: Trace) -> Load:
    def timed(shards: range) -> list[Group]:
        begun = perf_counter()
        groups = load(shards)
        trace("data", begun, perf_counter())
        return groups

    return timed


def _whole_batches(walk: Walk) -> Places:
    """(position, epoch, step) of the steps whose batch is whole, in order; where an epoch is one step, of that."""
    for position in range(1, walk.final):
        epoch, step = walk.where(position)
        if step < max(1, walk.steps - 1):
            yield position, epoch, step
