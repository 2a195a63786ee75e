"""Functions that build modules must build the same again: what they draw elsewhere is found, and named."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from unisono.errors import UserError
from unisono.models.torch.build import check_repeats, try_again
from unisono.models.torch.learning_task import Task


def anew() -> nn.Module:
    torch.seed()
    return nn.Linear(3, 2)


def own_generator() -> nn.Module:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.bias += torch.from_numpy(np.random.default_rng().random(2, np.float32))
    return module


def a_buffer() -> nn.Module:
    module = nn.Linear(3, 2)
    module.register_buffer("frequencies", torch.rand(4, generator=torch.Generator().manual_seed(int(next(COUNT)))))
    return module


def grows() -> nn.Module:
    return nn.Linear(3, int(next(COUNT)))


def more() -> nn.Module:
    return nn.Sequential(*[nn.Linear(3, 3) for _ in range(next(COUNT))])


COUNT = iter(range(1, 1000))


@pytest.mark.parametrize(
    ("make", "which"),
    [
        (anew, r"parameter 'weight' \(2, 3\) is not the same again"),
        (own_generator, r"parameter 'bias' \(2,\) is not the same again"),
        (a_buffer, r"buffer 'frequencies' \(4,\) is not the same again"),
        (grows, r"parameter 'weight' \(\d+, 3\), then parameter 'weight' \(\d+, 3\)"),
        (more, r"nothing, then parameter '\d\.weight' \(3, 3\)"),
    ],
)
def test_what_is_drawn_elsewhere_is_named(make, which):
    with pytest.raises(UserError, match=rf"(?s)mine\.py:net was called twice with the same seed: {which}; .*HINT"):
        check_repeats(make, "mine.py:net")


def test_generators_that_are_seeded_may_be_drawn_from():
    def make() -> nn.Module:
        module = nn.Linear(3, 2)
        with torch.no_grad():
            module.weight += np.random.rand() + random.random()
        return module

    before = torch.get_rng_state()
    assert check_repeats(make, "mine.py:net") == []
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_of_its_own_is_said():
    def make() -> nn.Module:
        torch.manual_seed(5)
        return nn.Linear(3, 2)

    (note,) = check_repeats(make, "mine.py:net")
    assert note.startswith("Note: mine.py:net seeds torch's generator itself: --seed does not decide")


def test_only_functions_of_the_user_are_called_again(tmp_path):
    (tmp_path / "mine.py").write_text("import torch\ndef net():\n  torch.seed()\n  return torch.nn.Linear(3, 2)\n")
    assert try_again("mlp:4", Task((3,), 2)) == []
    with pytest.raises(UserError, match="called twice"):
        try_again(f"{tmp_path}/mine.py:net", Task((3,), 2))


TRUNK = nn.BatchNorm1d(3)
FROZEN = nn.Linear(3, 3).requires_grad_(False)
HEAD = nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("make", "which"),
    [
        (lambda: nn.Sequential(TRUNK, nn.Linear(3, 2)), r"parameter '0\.weight'"),
        (lambda: nn.Sequential(TRUNK.requires_grad_(False), nn.Linear(3, 2)), r"buffer '0\.running_mean'"),
        (lambda: HEAD, r"parameter 'weight'"),
    ],
)
def test_a_module_that_was_returned_before_is_refused(make, which):
    with pytest.raises(UserError, match=rf"(?s)mine\.py:net was called twice, and {which} of the second .*deepcopy"):
        check_repeats(make, "mine.py:net")


def test_what_training_never_changes_may_be_common():
    assert check_repeats(lambda: nn.Sequential(FROZEN, nn.Linear(3, 2)), "mine.py:net") == []
