"""Recipes drawn at random, other ones each time: one hash and the same records on any ranks, on two machines, after a
death, after a resume. `benchmarks/random_recipes.py` does the same for as many as one likes.

    UNISONO_RECIPES_SEED=7 python -m pytest tests/training/test_any_recipe.py  # those of a seed that was printed
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

TOOL = Path(__file__).parents[2] / "benchmarks" / "random_recipes.py"
EACH = 16


@pytest.mark.timeout(1200)
def test_any_recipe_ends_the_same_however_it_is_run():
    seed = os.environ.get("UNISONO_RECIPES_SEED") or str(secrets.randbelow(2**31))
    command = [sys.executable, str(TOOL), "--numpy", str(EACH), "--torch", str(EACH), "--seed", seed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False)
    assert ended.returncode == 0, f"UNISONO_RECIPES_SEED={seed}\n{ended.stdout}{ended.stderr}"
    assert ended.stdout.count(f"{EACH} recipes: {EACH} equal") == 2
