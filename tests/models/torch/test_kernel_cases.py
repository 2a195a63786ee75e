"""What torch's kernels are assumed to do, tried for each kind of layer, and for products as such."""

import time

import numpy as np
import pytest

from unisono import aligned
from unisono.models.kernel_check import THOROUGH, dependences

torch = pytest.importorskip("torch")
from unisono.models.torch.kernel_cases import torch_cases  # noqa: E402

SEED = time.time_ns() % 2**32


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", torch_cases(0))
def test_a_shard_has_the_same_bits_wherever_it_is_computed(name, precision):
    torch.set_num_threads(1)
    case = torch_cases(SEED, precision)[name]
    assert dependences(case.make(), *case[1:], THOROUGH) == [], f"seed {SEED}"


def test_products_have_the_same_bits_on_every_border():
    """The assumption as such: 64 bytes are enough, whatever the page, the shapes and the order of calls."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    for _ in range(60):
        m, k, n = (int(size) for size in rng.choice([1, 2, 3, 5, 8, 13, 24, 31, 64, 97, 130], 3))
        values = [rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (k, n))]
        found = set()
        for borders in rng.integers(0, 64, (6, 2)):
            a, b = (placed(array, int(border)) for array, border in zip(values, borders, strict=True))
            found.add((torch.mm(a, b).numpy().tobytes(), torch.mm(b.T, a.T).numpy().tobytes()))
        assert len(found) == 1, f"seed {SEED}: {m} x {k} by {k} x {n}"


def placed(array: np.ndarray, border: int):
    memory = aligned.zeros(array.size + 16 * border)
    copy = memory[16 * border :].reshape(array.shape)
    copy[...] = array
    return torch.from_numpy(copy)
