"""What a module keeps in plain attributes: every kind of value, and the name of the first that differs."""

import itertools
import random
import threading
from collections import Counter, OrderedDict, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from unisono.models.torch.module_attributes import MOST, first_change, module_attributes


class Slotted:
    __slots__ = ("seen",)

    def __init__(self, seen: int) -> None:
        self.seen = seen


class Chain:
    """A list of objects, each of which knows the next."""

    def __init__(self, next: "Chain | None") -> None:
        self.value, self.next = 0, next


def put(name, value):
    return lambda module: setattr(module, name, value)


CHANGES = [
    (3, put("kept", 4), "kept", "3", "4"),
    (1.5, put("kept", 2.5), "kept", "1.5", "2.5"),
    (None, put("kept", "on"), "kept", "None", "'on'"),
    ([1, [2]], lambda module: module.kept[1].append(3), "len(kept[1])", "1", "2"),
    ((1, 2), put("kept", (1, 3)), "kept[1]", "2", "3"),
    (deque([1], 1), lambda module: module.kept.append(2), "kept[0]", "1", "2"),
    ({"a": {7: 1}}, lambda module: module.kept["a"].update({7: 2}), "kept['a'][7]", "1", "2"),
    (Counter("ab"), lambda module: module.kept.update("b"), "kept['b']", "1", "2"),
    (OrderedDict(a=1), lambda module: module.kept.update(b=1), "len(kept)", "1", "2"),
    ({5}, lambda module: module.kept.add(6), "len(kept)", "1", "2"),
    (Slotted(1), lambda module: setattr(module.kept, "seen", 2), "kept.seen", "1", "2"),
    (SimpleNamespace(a=[0]), lambda module: module.kept.a.append(1), "len(kept.a)", "1", "2"),
    (itertools.count(), lambda module: next(module.kept), "kept", "count(0)", "count(1)"),
    (np.zeros(3), lambda module: module.kept.fill(1), "kept", *["array of shape (3,), float64"] * 2),
    (np.float32(1), put("kept", np.float32(2)), "kept", *["array of shape (), float32"] * 2),
    (torch.zeros(3, dtype=torch.bfloat16), lambda m: m.kept.add_(1), "kept", *["tensor of shape (3,), bfloat16"] * 2),
    (torch.zeros(()), lambda m: m.kept.add_(1), "kept", *[f"tensor of shape (), float32: {n}.0" for n in "01"]),
    (torch.zeros(2).to_sparse(), put("kept", 1), "kept", "tensor of shape (2,), float32", "1"),
    (torch.Generator(), lambda m: torch.rand(1, generator=m.kept), "kept", *["tensor of shape (5056,), uint8"] * 2),
    (np.random.default_rng(1), lambda module: module.kept.random(), "kept", *["Generator"] * 2),
    (np.random.RandomState(1), lambda module: module.kept.rand(), "kept", *["RandomState"] * 2),
    (random.Random(1), lambda module: module.kept.random(), "kept", *["Random"] * 2),
    ([nn.BatchNorm1d(3)], lambda m: m.kept[0](torch.ones(2, 3)), "kept[0]._buffers['running_mean']",
     *["tensor of shape (3,), float32"] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("value", "change", "name", "before", "after"), CHANGES)
def test_a_value_that_changes_is_named(value, change, name, before, after):
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    module[1].kept = value
    found = module_attributes(module)
    assert first_change(found, module_attributes(module)) is None
    change(module[1])
    expected = f"len(1.{name[4:]}" if name.startswith("len(") else f"1.{name}"
    assert first_change(found, module_attributes(module)) == (expected, before, after)


def test_attributes_that_come_and_go():
    module = nn.Linear(3, 2)
    before = module_attributes(module)
    module.late = 1
    assert first_change(before, module_attributes(module)) == ("late", "not there", "1")
    assert first_change(module_attributes(module), before) == ("late", "1", "not there")


def test_what_is_torchs_own_is_no_state():
    module = nn.Sequential(nn.LSTM(3, 2), nn.BatchNorm1d(2))
    before = module_attributes(module)
    module.eval().requires_grad_(False)
    module[0].weight_hh_l0.data.fill_(1)
    module[1].running_mean.fill_(1)
    module.register_forward_hook(lambda *given: None)
    assert first_change(before, module_attributes(module)) is None


def test_objects_that_know_each_other_and_long_chains_end():
    module = nn.Linear(3, 2)
    module.ring = [module]
    module.ring.append(module.ring)
    chain = None
    for _ in range(10_000):
        chain = Chain(chain)
    module.lock, module.code, module.chain = threading.Lock(), (lambda: 1), chain
    module.many = list(range(2 * MOST))
    before = module_attributes(module)
    assert len(before) == MOST
    module.chain.next.next.value = 1
    assert first_change(before, module_attributes(module)) == ("chain.next.next.value", "0", "1")


class Raising(dict):
    """A mapping that does not show what it holds."""

    def items(self):
        raise RuntimeError("closed")


@pytest.mark.parametrize(
    "value", [lambda: Raising(a=1), lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])]
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_cannot_be_looked_at_is_one_leaf(value):
    module = nn.Linear(2, 2)
    module.kept, module.calls = value(), 0
    before = module_attributes(module)
    module.calls += 1
    assert first_change(before, module_attributes(module)).name == "calls"


def test_of_a_long_container_only_the_first_are_named(monkeypatch):
    """However long it is: names of all would take memory and seconds."""
    monkeypatch.setattr("unisono.models.torch.module_attributes.MOST", 10)
    named = []

    class Counted(list):
        def __iter__(self):
            for number in range(10**9):
                named.append(number)
                yield number

        def __len__(self):
            return 10**9

    module = nn.Linear(2, 2)
    module.kept = Counted()
    assert next(leaf for leaf in module_attributes(module) if leaf.name == "len(kept)").shown == str(10**9)
    assert len(named) <= 11
