import numpy as np
import pytest

from unisono.data.dataset import DataOptions, Raw
from unisono.data.preparation import prepare
from unisono.errors import UserError

X = np.arange(30.0).reshape(10, 3)
Y = np.arange(10) % 3
GOOD = {"train_x": X, "train_y": Y}


def made(options=None, classes=0, **arrays):
    return prepare(Raw("mine", GOOD | arrays, classes), options or DataOptions())


def changed(array, place, value):
    copy = np.array(array, np.float64)
    copy[place] = value
    return copy


def test_arrays_are_cast_flattened_and_read_only():
    dataset = made(train_x=np.asfortranarray(np.arange(60, dtype=np.int16).reshape(10, 3, 2)))
    assert (dataset.train_x.shape, dataset.train_x.dtype, dataset.shape) == ((10, 6), np.float32, (3, 2))
    assert dataset.train_x.flags.c_contiguous
    assert dataset.train_x[2].tolist() == [12, 13, 14, 15, 16, 17]
    for array in dataset.arrays().values():
        assert not array.flags.writeable
    assert dataset.nbytes == 10 * 6 * 4 + 10 * 8


def test_the_users_arrays_stay_as_they_are():
    mine = X.astype(np.float32)
    for kind in ("none", "unit", "standard"):
        made(DataOptions(normalise=kind), train_x=mine)
    assert np.array_equal(mine, X)
    assert mine.flags.writeable


@pytest.mark.parametrize("labels", [Y, Y.astype(np.uint8), Y.astype(np.float32), Y[:, None], Y.astype(">i4")])
def test_labels_of_any_whole_type(labels):
    dataset = made(train_y=labels)
    assert (dataset.train_y.dtype, dataset.train_y.tolist(), dataset.classes) == (np.int64, Y.tolist(), 3)
    assert made(train_y=Y > 0).train_y.tolist() == [0, 1, 1, 0, 1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train_x": X[:0], "train_y": Y[:0]}, r"train_x is empty, its shape is \(0, 3\)"),
        ({"train_x": X[:, :0]}, r"train_x is empty, its shape is \(10, 0\)"),
        ({"train_y": np.full(10, 4)}, "train_y holds one class only, 4"),
        ({"train_y": changed(Y, 7, -1)}, "train_y row 7: label -1.0 is negative"),
        (
            {"train_y": changed(Y, 3, 0.5)},
            "train_y row 3: label 0.5 is not a whole number\nHINT: targets of a regression",
        ),
        ({"train_y": changed(Y, 2, np.nan)}, "train_y row 2: label nan is not a whole number"),
        ({"train_y": changed(Y, 2, np.inf)}, "train_y row 2: label inf is out of range"),
        ({"train_y": np.full(10, 2**63, np.uint64)}, "train_y row 0: label 9223372036854775808 is out of range"),
        ({"train_y": changed(Y, 4, 99)}, "train_y row 4: label 99 would make 100 classes, more than rows"),
        ({"test_x": X[:2], "test_y": np.array([0, 3])}, "test_y row 1: label 3 is out of range: there are 3 classes"),
        ({"train_x": changed(X, (8, 1), np.nan)}, "train_x row 8, column 1: nan"),
        ({"train_x": changed(X, (5, 0), -np.inf)}, "train_x row 5, column 0: -inf"),
        ({"train_x": changed(X, (5, 2), 1e300)}, r"train_x row 5, column 2: 1e\+300, too large for float32"),
        ({"train_x": changed(X, (9, 2), np.nan).reshape(10, 3, 1)}, "train_x row 9, column 2, 0: nan"),
        ({"test_x": changed(X, (1, 1), np.nan), "test_y": Y}, "test_x row 1, column 1: nan"),
        ({"train_y": changed(X, (6, 1), np.nan)}, "train_y row 6, column 1: nan"),
        ({"train_y": Y[:9]}, "train_x has 10 rows, train_y has 9"),
        ({"test_x": X[:, :2], "test_y": Y}, "train_x has 3 features a row, test_x has 2"),
        ({"train_y": X, "test_x": X, "test_y": X[:, :2]}, "train_y has 3 outputs a row, test_y has 2"),
        ({"test_x": X, "test_y": X}, "train_y holds labels, test_y targets of a regression"),
        ({"train_x": X[:, 0]}, r"train_x has shape \(10,\), expected \(rows, features\)"),
        ({"train_x": np.float64(3)}, r"train_x has shape \(\)"),
        ({"train_y": X[:, :, None]}, r"train_y is float64 of shape \(10, 3, 1\)"),
        ({"train_y": np.eye(10, dtype=int)}, r"train_y is int64 of shape \(10, 10\).*\n.*argmax"),
        ({"train_x": X.astype(complex)}, "train_x is of type complex128, not numbers"),
        ({"train_y": np.array(["a"] * 10)}, "train_y is of type <U1, not numbers"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(arrays, message):
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    with pytest.raises(UserError, match=message) as caught:
        made(**arrays)
    assert str(caught.value).startswith("mine: ")
    assert "HINT" in str(caught.value)


def test_a_bad_row_in_a_later_block_has_its_own_number():
    x = np.zeros((10_000, 2))
    x[9_000, 1] = np.nan
    with pytest.raises(UserError, match="train_x row 9000, column 1"):
        made(train_x=x, train_y=np.arange(10_000) % 2)


def test_the_number_of_classes_may_be_more_than_seen_but_not_less():
    assert made(classes=12).classes == 12
    with pytest.raises(UserError, match=r"label 2 is out of range: there are 2 classes\nHINT: .* up to 1"):
        made(classes=2)


def test_parts_without_rows_count_as_missing():
    dataset = made(test_x=np.empty((0, 7)), test_y=np.empty(0))
    assert dataset.test_x.shape == (0, 3)
    regression = made(train_y=X)
    assert (regression.test_y.shape, regression.test_y.dtype) == ((0, 3), np.float32)


def test_validation_is_cut_from_the_training_part_by_the_seed():
    x = np.arange(100.0)[:, None]
    labels = np.arange(100) % 2

    def held(seed):
        dataset = made(DataOptions(validation=0.2, seed=seed), train_x=x, train_y=labels)
        assert sorted([*dataset.train_x[:, 0], *dataset.validation_x[:, 0]]) == list(range(100))
        assert np.array_equal(dataset.validation_y, dataset.validation_x[:, 0] % 2)
        assert np.array_equal(dataset.train_y, dataset.train_x[:, 0] % 2)
        assert len(dataset.validation_x) == 20
        return dataset.validation_x[:, 0].tolist()

    assert held(1) == held(1) == sorted(held(1))
    assert held(1) != held(2)


@pytest.mark.parametrize("fraction", [-0.1, 1, 0.001, 0.999, float("nan")])
def test_a_fraction_that_cannot_be_cut(fraction):
    with pytest.raises(UserError, match=r"for validation and|validation part is"):
        made(DataOptions(validation=fraction))


def test_a_validation_part_of_its_own_is_not_replaced():
    with pytest.raises(UserError, match="has a validation part of its own, 4 rows"):
        made(DataOptions(validation=0.5), validation_x=X[:4], validation_y=Y[:4])


def test_unit_and_standard_come_from_the_training_part_alone():
    test = {"test_x": X[:2] + 1000, "test_y": Y[:2]}
    unit = made(DataOptions(normalise="unit"), **test)
    assert (unit.train_x.min(), unit.train_x.max()) == (0, 1)
    assert unit.test_x[0, 0] == np.float32(1000) / np.float32(29)
    standard = made(DataOptions(normalise="standard"), **test)
    assert standard.train_x.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-6)
    assert standard.train_x.std(axis=0) == pytest.approx([1, 1, 1], rel=1e-6)
    assert standard.test_x[0] == pytest.approx((X[0] + 1000 - X.mean(axis=0)) / X.std(axis=0), rel=1e-5)


def test_images_are_standardised_as_a_whole():
    images = np.zeros((10, 2, 2))
    images[:, 0, 0] = np.arange(10)
    dataset = made(DataOptions(normalise="standard"), train_x=images)
    assert dataset.train_x.mean() == pytest.approx(0, abs=1e-6)
    assert dataset.train_x.std() == pytest.approx(1, rel=1e-6)
    assert np.unique(dataset.train_x[:, 1]).size == 1


@pytest.mark.parametrize("kind", ["unit", "standard"])
def test_constant_features_do_not_divide_by_zero(kind):
    dataset = made(DataOptions(normalise=kind), train_x=np.full((10, 2), 7.0))
    assert np.array_equal(dataset.train_x, np.zeros((10, 2)))


def test_an_unknown_normalisation_lists_the_names():
    with pytest.raises(UserError, match="unknown normalisation 'units'; there are: unit, none, standard, auto"):
        made(DataOptions(normalise="units"))
