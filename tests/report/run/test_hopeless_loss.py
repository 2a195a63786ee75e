"""When a finite loss is warned of: ten times worse than guessing, and not getting better; once."""

import math

import pytest

from unisono.data.sources import load
from unisono.report.run.hopeless_loss import Divergence, guess_of


def warned(*losses: float, guess: float = 2.0, epochs: int = 9) -> list[int]:
    """In which epochs."""
    watch = Divergence(guess, lr=3.0, epochs=epochs)
    return [epoch for epoch, loss in enumerate(losses, 1) if watch.add({"epoch": epoch, "train_loss": loss})]


@pytest.mark.parametrize(
    ("losses", "run", "epochs"),
    [
        ((1.0, 19.0, 20.0), {}, []),
        ((1.0, 21.0, 30.0), {}, [2]),  # said once
        ((900.0, 40.0, 3.0), {}, []),  # began badly
        ((900.0, 901.0), {}, [2]),
        ((900.0, 40.0, 41.0), {}, [3]),
        ((900.0, 40.0), {"epochs": 2}, [2]),
        ((21.0,), {"epochs": 1}, [1]),
        ((900.0, 901.0), {"guess": 0.0}, []),  # all targets are the same
    ],
)
def test_what_gets_better_has_time_until_the_last_epoch(losses, run, epochs):
    assert warned(*losses, **run) == epochs


def test_the_warning_says_what_to_do():
    told = Divergence(2.3026, lr=100.0, epochs=1).add({"epoch": 1, "train_loss": 6.15e14})
    assert "the train loss of epoch 1 is 6.15e+14, and guessing has 2.3.\nHINT: lower --lr (100), or" in told


def test_guesses():
    assert guess_of(load("digits")) == math.log(10)
    data = load("synthetic:regression,rows=50,features=3")
    assert guess_of(data) == pytest.approx(float(((data.train_y - data.train_y.mean(0)) ** 2).mean(0).sum()), rel=1e-5)


@pytest.mark.parametrize("part", ["test", "validation"])
@pytest.mark.parametrize("loss", [float("inf"), float("nan")])
def test_a_loss_that_is_not_finite_after_the_last_update_is_warned_of_once(part, loss):
    watch = Divergence(2.3026, lr=1e38, epochs=2)
    told = watch.add({"epoch": 1, "train_loss": 2.0, f"{part}_loss": loss})
    assert told.startswith(f"Warning: the training diverges: after epoch 1 the {part} loss is not finite")
    assert "HINT: lower --lr" in told
    assert watch.add({"epoch": 2, "train_loss": 1.9, f"{part}_loss": loss}) == ""
