"""Things come back as they were: types, infinities, keys; what cannot is refused by its place."""

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from unisono.errors import UserError

torch = pytest.importorskip("torch")
things = pytest.importorskip("unisono.loop.state_codec")

VALUES: list[Any] = [
    None, True, 7, 2.5, "text", math.inf, -math.inf, [1, [2, "x"]], (1, (2, None)), {}, [], (), {"a": {"b": 1}},
    {1: "x", None: 2, (1, 2): 3, "kind": "tuple"}, Counter({30: 1, 60: 2}),
]  # fmt: skip


def kept(value: Any) -> Any:
    """Through JSON, as in a snapshot."""
    arrays: dict[str, np.ndarray] = {}
    return things.unpack(json.loads(json.dumps(things.pack(value, arrays), allow_nan=False)), arrays)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_plain_values(value):
    found = kept(value)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_and_numbers_of_numpy():
    assert math.isnan(kept(math.nan))
    assert kept([np.float32(0.5), np.int64(3)]) == [0.5, 3]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "uint8"])
def test_arrays_and_tensors_are_copies(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    state = {"array": array, "tensor": torch.from_numpy(array.copy()), "number": torch.tensor(3)}
    found = kept(state)
    np.testing.assert_array_equal(found["array"], array)
    assert found["array"].dtype == array.dtype
    assert torch.equal(found["tensor"], state["tensor"])
    assert found["tensor"].dtype == state["tensor"].dtype
    assert found["number"].shape == ()
    array[...] = 0
    assert found["array"].any()


def sequence(optimizer: Any) -> dict[str, Any]:
    lr = torch.optim.lr_scheduler
    parts = [lr.LinearLR(optimizer, 0.1, total_iters=3), lr.MultiStepLR(optimizer, [2, 4], 0.5)]
    return {"scheduler": lr.SequentialLR(optimizer, parts, [3]), "own": {"best": math.inf}}


def rates_of(steps: int, stop: int) -> list[float]:
    """Of so many steps; after `stop` of them everything is made anew, and what was kept is put back."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    given, rates, arrays = sequence(optimizer), [], dict[str, np.ndarray]()
    for step in range(steps):
        if step == stop:
            saved, rate = things.state_of(given, arrays), optimizer.param_groups[0]["lr"]
            optimizer = torch.optim.SGD(optimizer.param_groups[0]["params"], lr=rate)
            given = sequence(optimizer)
            given["own"]["best"] = 0.0
            for name, thing in given.items():
                things.restore_state(thing, saved[name], arrays)
            optimizer.param_groups[0].update(lr=rate)
            assert given["own"] == {"best": math.inf}
        optimizer.step()
        given["scheduler"].step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def test_schedulers_and_averages_go_on():
    """Loaded into one that was made anew, they take the same way."""
    rates = rates_of(9, stop=9)
    assert rates == rates_of(9, stop=4)
    assert len(set(rates)) > 4


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [0, {1, 2}]}, r"own\['a'\]\[1\]: a set"),
        ({"a": torch.zeros(2, dtype=torch.bfloat16)}, r"own\['a'\]: a Tensor"),
        ({"a": np.array([object()])}, r"own\['a'\]: a ndarray"),
        ({"a": print}, r"own\['a'\]: a builtin_function"),
    ],
    ids=["set", "bfloat16", "objects", "function"],
)
def test_what_cannot_be_kept_is_named(value, where):
    with pytest.raises(UserError, match=where):
        things.state_of({"own": value}, {})


def test_what_has_no_state_is_refused():
    for thing in (3, [], print):
        with pytest.raises(UserError, match="state_dict"):
            things.check_keepable("it", thing)
    things.check_keepable("it", {})


def test_schedulers_of_users_may_grow_and_change_their_types():
    class Growing(torch.optim.lr_scheduler.LRScheduler):
        def __init__(self, optimizer):
            self.seen, self.best = [], None
            super().__init__(optimizer)

        def get_lr(self):
            self.seen.append(self.last_epoch)
            self.best = len(self.seen) if len(self.seen) > 1 else "none yet"
            return [0.5 / len(self.seen) for _ in self.optimizer.param_groups]

    def made():
        return Growing(torch.optim.SGD([torch.nn.Parameter(torch.zeros(13))], 0.5))

    first, second = made(), made()
    for _ in range(3):
        first.optimizer.step()
        first.step()
    arrays: dict[str, np.ndarray] = {}
    saved = things.pack(first.state_dict(), arrays)
    things.restore_state(second, saved, arrays)
    assert (second.seen, second.best, second.last_epoch) == ([0, 1, 2, 3], 4, 3)
    for wrong in ("x", [0.1, 0.2], None):
        with pytest.raises(ValueError, match="base_lrs"):
            things.restore_state(made(), things.pack({**first.state_dict(), "base_lrs": wrong}, arrays), arrays)
