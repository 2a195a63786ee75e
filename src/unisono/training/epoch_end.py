"""EpochEnd: what happens after the steps of an epoch and at the end of a run: evaluation, records, weights, early stop.

The one idea: every rank fills its part of the table of an evaluation, and one rank reports the result *before* the
round is committed. If that rank dies, another one reports it again: nothing is lost, and the recorder ignores
repeats. Numbers that are not finite are neither reported nor saved, and the run fails.

Early stopping: when the last `patience` evaluations all reached the target. All ranks see the same global accuracies,
so all decide alike.

>>> [target_reached(found, target=0.9, patience=2) for found in ([0.95], [0.95, 0.8, 0.9], [0.95, 0.8, 0.9, 0.91])]
[False, False, True]
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, final

import numpy as np

from unisono.data.loader import Loader
from unisono.errors import UserError
from unisono.messages.rank_reports import EpochRecord, FinalWeights, Note, SendReport, WeightsTrouble
from unisono.models.base import Model
from unisono.resources import pss_bytes
from unisono.storage.fallback_writer import NotWritten, write_with_fallback
from unisono.storage.model_card import ModelCard
from unisono.storage.resume import SNAPSHOTS
from unisono.storage.snapshots.writer import prune
from unisono.storage.weights import Weights, epoch_in, save
from unisono.strategies.base import Strategy
from unisono.training.bits_and_speed_trials import OVERHEAD_S, shard_overhead
from unisono.training.evaluate import blocks_of, measure_blocks, score_of
from unisono.training.finite_check import FiniteCheck, divergence_hint
from unisono.training.job import Job


def target_reached(accuracies: Sequence[float], target: float, patience: int) -> bool:
    """`accuracies` of all evaluations so far, in order; `target` 0 never stops."""
    recent = accuracies[-patience:]
    return bool(target) and len(recent) == patience and all(accuracy >= target for accuracy in recent)


LOSS, ACCURACY, EVALUATED = range(3)
"""Columns of `Strategy.scores`."""


@final
class EpochEnd:
    """One rank's side."""

    def __init__(
        self,
        strategy: Strategy,
        model: Model,
        job: Job,
        report: SendReport,
        weights: Path | None,
    ) -> None:
        self._strategy, self._model, self._job = strategy, model, job
        self._report, self._weights = report, weights
        self._card = ModelCard.of(job.recipe, job.dataset)
        self._finite = FiniteCheck(model, strategy.params, strategy.buffers)
        self._saved = 0
        """The last epoch whose weights this rank has saved."""
        self._part = "validation" if len(job.dataset.validation_x) else "test"

    def epoch(self, position: int, epoch: int) -> None:
        """Evaluates if it is time to, tells the epoch, saves the weights."""
        recipe, strategy = self._job.recipe, self._strategy
        strategy.check_reproducible()
        x, y = self._job.dataset.part(self._part)
        if epoch % recipe.learning.eval_every and epoch != recipe.learning.epochs:
            x, y = x[:0], y[:0]

        def tell(table: np.ndarray) -> None:
            score = score_of(table, len(x))
            if score is not None:
                strategy.scores[epoch] = score.loss, score.accuracy, 1.0
            self._tell_epoch(epoch)
            self._save(epoch)

        due = self._job.snapshots.due_after(epoch)
        kept = f"; the weights of epoch {epoch - 1} are kept" if epoch > 1 else ""
        check = partial(self._check_finite, epoch, kept)
        strategy.evaluate(position, blocks_of(x), measure_blocks(self._model, x, y), tell, due=due, check=check)

    def stopped(self, epoch: int) -> str:
        """Why the run stops early after this epoch; empty if it does not."""
        recipe, rows = self._job.recipe, self._strategy.scores[1 : epoch + 1]
        accuracies = rows[rows[:, EVALUATED] > 0, ACCURACY].tolist()
        if not target_reached(accuracies, recipe.learning.target_accuracy, recipe.learning.patience):
            return ""
        return f"{self._part} accuracy {accuracies[-1]:.4f} reached {recipe.learning.target_accuracy:g}"

    def end(self, position: int) -> dict[str, Any]:
        """The final round: the test part, and what the run found."""
        strategy, model, plan, data = self._strategy, self._model, self._job.plan, self._job.dataset
        strategy.note_memory(pss_bytes())
        measure = measure_blocks(model, data.test_x, data.test_y)
        epochs = self._epochs_done()
        check = partial(self._check_finite, epochs, kept="")  # again: a run may be resumed at its end

        def tell(table: np.ndarray) -> None:
            self._save_surely(epochs)

        table = strategy.evaluate(position, blocks_of(data.test_x), measure, tell, check=check)
        tested = score_of(table, len(data.test_x))
        loss, accuracy = self._trained()
        return {
            "train_loss": loss,
            "train_accuracy": accuracy,
            "test_loss": None if tested is None else tested.loss,
            "test_accuracy": None if tested is None else tested.accuracy,
            "epochs": epochs,
            "steps": epochs * self._job.updates,
            "samples": epochs * plan.epoch_samples,
            "stopped_early": self.stopped(epochs),
            "first_sync_s": strategy.clock().first_sync_s,
            "shard_price": self._price(),
            "peak_memory_bytes": strategy.memory_bytes(),
            "weights_sha256": self._current(epochs).sha256(),
        }

    def _check_finite(self, epoch: int, kept: str) -> None:
        when, hint = f"after the last step of epoch {epoch}{kept}", divergence_hint(self._job.recipe)
        self._finite(self._strategy.params, self._strategy.buffers, when, hint=hint)

    def _tell_epoch(self, epoch: int) -> None:
        strategy, plan, clock = self._strategy, self._job.plan, self._strategy.clock()
        loss, accuracy = self._trained()
        ranks = [{"host": host, **row} for host, row in zip(strategy.hosts, strategy.times(epoch), strict=True)]
        timed = sum(plan.batch_samples(step) for step in range(clock.from_step, plan.steps_per_epoch))
        if self._job.spec.asynchronous:  # whose one step may have been done in part before it was resumed
            timed = sum(entry["samples"] for entry in ranks)
        # Nothing was timed of an epoch whose steps were all done before the run was resumed.
        epoch_s = max(0.0, clock.ended - clock.begun)
        metrics = {
            "epoch": epoch, "epoch_s": epoch_s, "total_s": time.perf_counter() - clock.begun,
            "samples_per_s": timed / epoch_s if epoch_s > 0 else 0.0, "lr": self._job.lr(epoch * self._job.updates),
            "train_loss": loss, "train_accuracy": accuracy,
        }  # fmt: skip
        score = strategy.scores[epoch].tolist()
        if score[EVALUATED]:
            metrics |= {f"{self._part}_loss": score[LOSS], f"{self._part}_accuracy": score[ACCURACY]}
        shares = strategy.contributions().tolist()
        others = strategy.epoch_extras(epoch)
        steps, meetings = self._job.updates, self._job.meetings(epoch)
        self._report(EpochRecord(metrics | others.metrics, steps, ranks, shares, meetings, others.pushes))

    def _trained(self) -> tuple[float, float]:
        """Mean loss and accuracy of the last epoch's training samples, as the steps found them."""
        loss_sum, correct = self._strategy.epoch_sums()
        samples = self._job.plan.epoch_samples
        return loss_sum / samples, correct / samples

    def _epochs_done(self) -> int:
        """All, or those up to the one after which the run stopped."""
        epochs = range(1, self._job.recipe.learning.epochs + 1)
        evaluated = (epoch for epoch in epochs if self._strategy.scores[epoch, EVALUATED])
        return next((epoch for epoch in evaluated if self.stopped(epoch)), len(epochs))

    def _current(self, epoch: int) -> Weights:
        return Weights.of(self._model, self._strategy.params, self._strategy.buffers, self._card, epoch)

    def _save(self, epoch: int) -> None:
        """Nobody changes the parameters meanwhile: the next update needs this rank.

        Training is not lost because a file could not be written: the next epoch tries again.
        """
        if self._weights is None:
            return
        try:
            save(self._current(epoch), self._weights)
        except UserError as error:
            self._report(WeightsTrouble(error.message, error.hint))
        else:
            self._saved = epoch
            # Every time: the rank that told of trouble may not be this one.
            self._report(WeightsTrouble())

    def _save_surely(self, epoch: int) -> None:
        """The weights that the run ends with, unless they are saved: there is no next epoch to try it again."""
        if self._weights is None or self._saved == epoch:
            return
        home, name, weights = self._weights.parent, self._weights.name, self._current(epoch)

        def write(folder: Path) -> Path:
            save(weights, folder / name)
            return folder / name

        nbytes = sum(array.nbytes for array in weights.arrays.values())
        make_room = partial(prune, home / SNAPSHOTS, within=home)
        try:
            kept = write_with_fallback(write, home, nbytes, make_room, lambda text: self._report(Note(text)))
        except NotWritten as error:
            self._report(FinalWeights(None, error.message, error.hint))
            return
        trouble = hint = ""
        if kept.cause:
            older = f", {name} there holds those of epoch {before}" if (before := epoch_in(self._weights)) else ""
            trouble = f"{kept.cause}{older}; the weights that the run ended with are in {kept.path}"
            hint = f"make room, then: cp {quote(str(kept.path))} {quote(str(self._weights))}"
        self._report(FinalWeights(str(kept.path), trouble, hint))

    def _price(self) -> float | None:
        """What shards cost this rank in computing; None if that would take long, and then they cost little, or if they
        are replicas, which could not be computed in one."""
        plan, data = self._job.plan, self._job.dataset
        if self._job.sync_schedule is not None or self._strategy.step_s() > OVERHEAD_S / 4:
            return None
        loader = Loader(plan, data.train_x, data.train_y)
        groups = loader.groups(plan.order(0), 0, self._strategy.share(plan.live(0)))
        return shard_overhead(self._model, groups[0].x, groups[0].y) if groups else 1.0
