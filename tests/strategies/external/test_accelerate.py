"""Without its package `accelerate` gives one clear message. How it trains is in `test_ddp.py`."""

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.external import spec as external
from unisono.strategies.registry import resolve


def test_without_the_package_there_is_a_hint(monkeypatch):
    monkeypatch.setattr(external, "find_spec", lambda name: None if name == "accelerate" else object())
    with pytest.raises(UserError) as error:
        resolve(Recipe.from_options(strategy="accelerate"))
    assert "--strategy accelerate needs the package accelerate" in str(error.value)
    assert "pip install -c constraints.txt '.[accelerate]' in unisono's repository" in str(error.value)
    assert resolve(Recipe.from_options(strategy="ddp", device="cpu")).model.engine == "torch"
