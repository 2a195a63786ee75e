import subprocess
import sys
from hashlib import blake2b
from itertools import product
from struct import pack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Philox

from unisono.errors import UserError
from unisono.rng import generator

NUMBERS = st.integers(0, 2**64 - 1)

STORED = {
    "random": [0.07804552277863042, 0.7328072359640179],
    "random32": [0.9334410429000854, 0.07804548740386963],
    "uniform": [-0.6878179088854783, 1.9312289438560715],
    "integers": [933, 78, 737, 732, 173],
    "normal": [0.9291228935617293, -0.800111267046194],
    "normal32": [1.3890634775161743, 0.13232079148292542],
    "permutation": [6, 2, 8, 1, 4, 5, 0, 3, 7],
    "bytes": "79fef5ee",
}
"""Drawn with NumPy 1.26.4."""


def test_the_raw_bits_are_the_stored_ones():
    found = generator(2026, "shuffle", 1, 2, 3).bit_generator.random_raw(3).tolist()
    assert found == [11081597992317882802, 14257247529079389983, 15179170852863219820]


@settings(deadline=None)
@given(seed=NUMBERS, key=st.lists(NUMBERS, max_size=4))
def test_it_is_philox_keyed_by_the_hash_of_the_tuple(seed, key):
    hashed = blake2b(b"unisono init            " + pack(f"<{len(key) + 1}Q", seed, *key), digest_size=16).digest()
    plain = Philox(key=int.from_bytes(hashed, "little"))
    assert generator(seed, "init", *key).bit_generator.random_raw(5).tolist() == plain.random_raw(5).tolist()


def test_the_methods_we_draw_with_give_the_stored_numbers():
    def stream() -> np.random.Generator:
        return generator(0, "synthetic", 5)

    def shuffled() -> list[int]:
        cards = np.arange(9)
        stream().shuffle(cards)
        return cards.tolist()

    assert stream().random(2).tolist() == STORED["random"]
    assert stream().random(2, dtype=np.float32).tolist() == STORED["random32"]
    assert stream().uniform(-1, 3, 2).tolist() == STORED["uniform"]
    assert stream().integers(0, 1000, 5).tolist() == STORED["integers"]
    assert stream().standard_normal(2).tolist() == STORED["normal"]
    assert stream().standard_normal(2, dtype=np.float32).tolist() == STORED["normal32"]
    assert stream().permutation(9).tolist() == STORED["permutation"]
    assert shuffled() == STORED["permutation"]
    assert stream().bytes(4).hex() == STORED["bytes"]


def test_streams_do_not_depend_on_the_order_of_calls():
    keys = list(product(range(3), range(3)))
    forward = {key: generator(1, "dropout", *key).random(10).tobytes() for key in keys}
    backward = {key: generator(1, "dropout", *key).random(10).tobytes() for key in reversed(keys)}
    assert forward == backward
    assert len(set(forward.values())) == len(keys)


def test_every_part_of_the_tuple_counts():
    tuples = [(0, "init"), (1, "init"), (0, "split"), (0, "init", 0), (0, "init", 0, 0), (0, "init", 1), (1, "init", 0)]
    assert len({int(generator(*each).bit_generator.random_raw()) for each in tuples}) == len(tuples)
    assert generator(0, "init", np.int64(1)).random() == generator(0, "init", 1).random()


def test_another_process_draws_the_same():
    code = "from unisono.rng import generator; print(generator(3, 'init', 4).bit_generator.random_raw())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert int(there.stdout) == int(generator(3, "init", 4).bit_generator.random_raw())


def test_an_unknown_purpose_lists_the_known_ones():
    with pytest.raises(UserError, match=r"(?s)unknown purpose of random numbers 'dropuot'.*did you mean 'dropout'"):
        generator(0, "dropuot")


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_the_users_mistake(seed):
    with pytest.raises(UserError, match=f"--seed {seed}: out of range"):
        generator(seed, "init")


@pytest.mark.parametrize("key", [-1, 2**64, 0.5])
def test_a_key_out_of_range_is_ours(key):
    with pytest.raises(ValueError, match="whole numbers"):
        generator(0, "init", key)
