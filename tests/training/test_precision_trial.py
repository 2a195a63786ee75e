"""What is said of 16 bits before a run: what was measured, and only where it matters."""

import pytest

from unisono.recipe import Recipe
from unisono.training import precision_trial
from unisono.training.job import prepare
from unisono.training.precision_trial import precision_notes

torch = pytest.importorskip("torch")
QUICK = {"data": "synthetic:classes=4,rows=64,features=64,test_rows=0", "model": "mlp:64", "batch_size": 64}


def test_fp32_needs_no_word():
    assert precision_notes(prepare(Recipe.from_options(**QUICK))) == []


def test_a_processor_without_the_instructions_is_warned_of_with_what_was_measured(monkeypatch):
    monkeypatch.setattr(precision_trial, "cpu_flags", set)
    monkeypatch.setattr(precision_trial, "_compare", lambda job: (3.25, False))
    (note,) = precision_notes(prepare(Recipe.from_options(**QUICK, precision="bf16")))
    assert "3.2 times as long" in note
    assert "HINT: use --precision fp32" in note


def test_a_processor_with_the_instructions_is_not(monkeypatch):
    monkeypatch.setattr(precision_trial, "cpu_flags", lambda: {"avx512_bf16"})
    monkeypatch.setattr(precision_trial, "_compare", lambda job: (3.25, False))
    assert precision_notes(prepare(Recipe.from_options(**QUICK, precision="bf16"))) == []


def test_no_threads_are_started_whatever_the_recipe_says():
    """Ranks are forked afterwards."""
    torch.set_num_threads(1)
    precision_trial._compare(prepare(Recipe.from_options(**QUICK, precision="bf16", threads=2)))
    assert torch.get_num_threads() == 1


def test_bits_are_compared_for_real():
    job = prepare(Recipe.from_options(**QUICK, precision="bf16"))
    slower, same = precision_trial._compare(job)
    assert slower > 0
    assert not same  # products in bf16 are others
    _, same = precision_trial._compare(prepare(Recipe.from_options(**QUICK, engine="torch")))
    assert same  # fp32 against fp32
