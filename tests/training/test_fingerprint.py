"""Fingerprints: JSON, the same each time, and differences in words; which libraries compute a recipe."""

import json
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from unisono.recipe import Recipe
from unisono.resources import machine
from unisono.training.fingerprint import FLAGS, differences, fingerprint, libraries_of


def test_it_is_json_and_the_same_each_time():
    here = fingerprint()
    assert json.loads(json.dumps(here)) == here
    assert differences(here, fingerprint()) == []
    assert here["numpy"] == np.__version__
    assert here["blas"], "NumPy brings a BLAS"
    assert set(here["cpu_flags"]) <= set(FLAGS)


def test_threads_count():
    with threadpool_limits(1, user_api="blas"):
        one = fingerprint()
    with threadpool_limits(2, user_api="blas"):
        two = fingerprint()
    (line,) = differences(one, two)
    assert line.startswith("threads: ")
    then, now = line.split(" then, ")
    assert "openblas 1" in then
    assert "openblas 2" in now


def test_every_difference_is_one_line_in_words():
    saved = {"cpu": "A", "cpu_flags": ["avx", "avx2"], "blas": ["openblas 1 Zen"], "numpy": "1.26.4", "torch": None}
    here = {"cpu": "B", "cpu_flags": ["avx", "avx512f"], "blas": [], "numpy": "1.26.4", "torch": "2.2"}
    assert differences(saved, here) == [
        "the processor: A then, B now",
        "BLAS: openblas 1 Zen then, none now",
        "torch: none then, 2.2 now",
        "this processor lacks instructions that were there: avx2",
        "this processor has instructions that were not there: avx512f",
    ]
    assert differences(here, here) == []


@pytest.mark.parametrize("flags", [None, 3, [1, []], "avx", {}])
def test_what_a_file_may_hold_is_shown_and_does_no_harm(flags):
    lines = differences({"cpu": "\x1b[31mred", "cpu_flags": flags, "new": {"a": [1.5]}}, {"cpu": "B", "cpu_flags": []})
    assert lines == ["the processor: '\\x1b[31mred' then, B now", "new: a 1.5 then, none now"]


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_counts_once_it_is_imported():
    code = (
        "from unisono.training.fingerprint import differences, fingerprint\n"
        "import sys; before = fingerprint(); assert 'torch' not in sys.modules\n"
        "import torch; torch.set_num_threads(3)\n"
        "print(*differences(before, fingerprint()), sep='\\n'); print(torch.__version__)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    *lines, version = ended.stdout.splitlines()
    assert f"torch: none then, {version} now" in lines
    assert any(line.startswith("threads: ") and "torch 3" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "libraries"),
    [
        ({}, []),
        ({"engine": "torch"}, ["torch"]),
        ({"model": "cnn:8,16"}, ["torch"]),
        ({"sync_batchnorm": True}, ["torch"]),
        ({"strategy": "ddp"}, ["torch"]),
        ({"strategy": "accelerate"}, ["torch", "accelerate"]),
        ({"model": "nothing"}, []),  # its run says so
    ],
)
def test_libraries_of_a_recipe(options, libraries):
    if "torch" in libraries:
        pytest.importorskip("torch")
    assert libraries_of([Recipe.from_options(**options)]) == libraries


def test_of_several_each_is_named_once():
    recipes = [Recipe.from_options(strategy=strategy) for strategy in ("sync", "accelerate", "ddp")]
    assert libraries_of(recipes) == ["torch", "accelerate"]


def test_their_versions_are_facts_of_the_machine_where_they_are_installed():
    facts = machine("psutil", "no-such-library")
    assert facts["psutil"] == metadata.version("psutil")
    assert facts.keys() - machine().keys() == {"psutil"}
