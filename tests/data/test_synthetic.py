import numpy as np
import pytest

from unisono.data.dataset import DataOptions
from unisono.data.sources import load
from unisono.errors import UserError


def best_linear(dataset, part="train"):
    x, y = dataset.part(part)
    rows = np.column_stack([x, np.ones(len(x))]).astype(np.float64)
    solution, *_ = np.linalg.lstsq(rows, y, rcond=None)
    return solution, rows, y


def test_regression_is_linear_down_to_the_noise():
    dataset = load("synthetic:regression,rows=1000,features=10,noise=0.1")
    assert (dataset.train_x.shape, dataset.train_y.shape, dataset.test_x.shape) == ((1000, 10), (1000, 1), (200, 10))
    assert (dataset.classes, dataset.outputs) == (0, 1)
    weights, _, _ = best_linear(dataset)
    _, rows, y = best_linear(dataset, "test")
    assert np.mean((rows @ weights - y) ** 2) == pytest.approx(0.01, rel=0.3)


def test_without_noise_the_weights_are_found_exactly():
    weights, rows, y = best_linear(load("synthetic:regression,rows=50,features=4,noise=0"))
    assert np.abs(rows @ weights - y).max() < 1e-5


def centroid_accuracy(spec):
    dataset = load(spec)
    centres = np.stack([dataset.train_x[dataset.train_y == c].mean(axis=0) for c in range(dataset.classes)])
    nearest = ((dataset.test_x[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return np.mean(nearest == dataset.test_y)


def test_difficulty_goes_from_certain_to_hopeless():
    found = [centroid_accuracy(f"synthetic:classes=5,rows=4000,features=20,difficulty={d}") for d in (0, 0.5, 0.8, 1)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 1
    assert 0.8 < found[1] < 0.99
    assert found[3] == pytest.approx(0.2, abs=0.08)


def test_centres_are_as_far_apart_as_promised():
    dataset = load("synthetic:classes=6,rows=6000,features=400,difficulty=0")
    centres = np.stack([dataset.train_x[dataset.train_y == c].mean(axis=0) for c in range(6)])
    apart = [np.linalg.norm(a - b) for i, a in enumerate(centres) for b in centres[:i]]
    assert np.mean(apart) == pytest.approx(8, rel=0.05)


def test_classes_are_balanced_and_shuffled():
    dataset = load("synthetic:classes=7,rows=700")
    assert np.bincount(dataset.train_y).tolist() == [100] * 7
    assert dataset.train_y[:7].tolist() != list(range(7))
    assert dataset.train_x.shape == (700, 32)


def test_equal_seeds_give_equal_bits_and_the_rest_does_not():
    def bits(spec, seed=0):
        return load(spec, DataOptions(seed=seed)).train_x.tobytes()

    assert bits("synthetic:rows=300") == bits("synthetic:rows=300")
    assert bits("synthetic:rows=300", 5) == bits("synthetic:rows=300,seed=5", 7)
    assert bits("synthetic:rows=300", 1) != bits("synthetic:rows=300")


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_test_part_does_not_depend_on_the_training_part(kind):
    few, many = (load(f"synthetic:{kind},rows={rows},test_rows=50") for rows in (100, 5000))
    assert few.test_x.tobytes() == many.test_x.tobytes()
    assert few.test_y.tobytes() == many.test_y.tobytes()
    assert not set(few.test_x[:, 0]) & set(many.train_x[:, 0])
    if kind == "regression":
        assert few.train_x.tobytes() == many.train_x[:100].tobytes()


def test_no_test_rows():
    assert load("synthetic:rows=30,test_rows=0").test_x.shape == (0, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("row=3", "unknown option of synthetic 'row'.*\nHINT: did you mean 'rows'"),
        ("regresion", "unknown kind of synthetic data 'regresion'"),
        ("rows=many", "'many' is not a whole number\nHINT: for example rows=10000"),
        ("rows=0", "rows is 0\nHINT: give 1 or more"),
        ("features=0", "features is 0"),
        ("classes=1", "classes is 1\nHINT: give 2 or more"),
        ("difficulty=1.5", "difficulty is 1.5"),
        ("difficulty=nan", "difficulty is nan"),
        ("regression,noise=-1", "noise is -1.0"),
        ("regression,classes=3", "classes has no meaning for regression"),
        ("noise=3", "noise has no meaning for classification"),
        ("test_rows=-3", "test_rows is -3"),
        ("classes=9,rows=1", "one class only"),
        ("rows=1" + "0" * 30, r"1,200,000.* rows of 32 features in 10 classes need more than 1 EiB of memory"),
        ("rows=13,features=1" + "0" * 30, r"15 rows of 1,000.* need more than 1 EiB"),
        ("rows=13,test_rows=1" + "0" * 30, "need more than 1 EiB"),
        ("rows=13,classes=1" + "0" * 15, r"in 1,000,000,000,000,000 classes need 698491\.9 TiB"),
        ("rows=" + "9" * 5000, "is longer than 40 characters\nHINT: for example rows=10000"),
        ("rows=1e400", "'1e400' is not a whole number"),
        ("rows=-13", "rows is -13"),
        ("rows=nan", "'nan' is not a whole number"),
        ("regression,noise=1e400", "noise is inf"),
        ("seed=1" + "0" * 30, "out of range"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        load(f"synthetic:{options}")


def test_more_rows_than_memory_are_refused_before_they_are_made():
    with pytest.raises(UserError, match=r"(?s)need .*TiB of memory.*HINT: ask for fewer rows"):
        load("synthetic:rows=100000000000,features=10", DataOptions())
