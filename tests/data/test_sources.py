import hashlib
import os
import subprocess

import numpy as np
import pytest

from support.paths import worker
from unisono.data import arrays
from unisono.data.dataset import DataOptions
from unisono.data.sources import ABOUT, load, whereabouts
from unisono.errors import UserError


def test_digits_are_bundled():
    dataset = load("digits")
    assert (dataset.train_x.shape, dataset.test_x.shape, dataset.shape) == ((1442, 64), (355, 64), (8, 8))
    assert (dataset.classes, dataset.train_x.min(), dataset.train_x.max()) == (10, 0, 1)
    assert np.bincount(dataset.train_y).tolist() == [143, 146, 142, 147, 145, 146, 145, 144, 140, 144]
    assert np.bincount(dataset.test_y).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    # The first image of the file: a zero.
    assert (dataset.train_x[0] * 16)[:16].tolist() == [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0]


def test_digits_are_attributed():
    text = arrays.DIGITS_FILE.with_suffix(".txt").read_text()
    assert "Alpaydin" in text
    assert "CC BY 4.0" in text


def test_a_damaged_installation_is_said(tmp_path, monkeypatch):
    file = tmp_path / "digits.npz"
    file.write_bytes(arrays.DIGITS_FILE.read_bytes()[:-1])
    monkeypatch.setattr(arrays, "DIGITS_FILE", file)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(UserError, match=f"is damaged: SHA-256 {found}.*\nHINT: install unisono again"):
        load("digits")
    file.unlink()
    with pytest.raises(UserError, match="No such file"):
        load("digits")


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(UserError, match=r"unknown data 'digit'; there are: digits, mnist, .*FILE.py:FUNCTION"):
        load("digit")
    with pytest.raises(UserError, match="unknown data ''"):
        load("")
    with pytest.raises(UserError, match="digits takes no options, 'x=3' was given"):
        load("digits:x=3")


def test_a_directory_of_the_name_of_a_source_needs_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    np.save(tmp_path / "digits" / "train_x.npy", np.ones((4, 2)))
    np.save(tmp_path / "digits" / "train_y.npy", np.arange(4) % 2)
    assert load("digits").features == 64
    assert load("./digits").features == 2


def test_where_things_are(small_mnist):
    assert {name: whereabouts(name, "/nowhere") for name in ABOUT if name != "fashion-mnist"} == {
        "digits": "bundled",
        "mnist": "not here: unisono data fetch mnist",
        "synthetic": "made on the spot",
        "synthetic-text": "made on the spot",
    }
    load("mnist")
    assert whereabouts("mnist").endswith("home/.cache/unisono/mnist")


@pytest.mark.parametrize(
    "spec", ["digits", "synthetic:rows=97", "synthetic-text", "mine.npz", "mine.txt", "mine.py:get"]
)
def test_a_data_dir_that_the_data_do_not_read_is_refused(spec):
    with pytest.raises(UserError, match=r"(?s)--data-dir ../mine with .*, which does not read it.*--data \.\./mine\?"):
        load(spec, DataOptions(data_dir="../mine"))


def test_small_files_and_short_options_never_take_a_gigabyte(tmp_path):
    x, y = np.zeros((1 << 19, 61), np.uint8), np.arange(2, dtype=np.uint8).repeat(1 << 18)
    np.savez_compressed(tmp_path / "most.npz", train_x=x, train_y=y)
    np.savez_compressed(tmp_path / "more.npz", train_x=np.zeros((70 << 20, 1), np.uint8), train_y=y)
    np.save(tmp_path / "train_y.npy", np.arange(13))
    (tmp_path / "train_x.npy").write_bytes(
        (tmp_path / "train_y.npy").read_bytes().replace(b"(13,), }            ", b"(13, 13000000000), }")
    )
    for name in ("long.txt", "long.npz"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(1 << 40)  # holes
    assert all((tmp_path / name).stat().st_size < 1 << 20 for name in ("most.npz", "more.npz", "train_x.npy"))
    specs = ["most.npz", "more.npz", "./", "long.txt", "long.npz"]
    specs += ["synthetic-text:characters=1" + "0" * 14, "synthetic:rows=13,classes=1" + "0" * 14]
    command = [*worker("memory_bombs"), *specs]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    said = done.stdout.splitlines()
    assert said[0] == f"loaded ({1 << 19}, 61)"
    much = "TiB of memory"
    expected = ["to be unpacked to", "but 104 follow", much, "not a zip file", much, much]
    for line, words in zip(said[1:], expected, strict=True):
        assert line.startswith("refused "), line
        assert words in line


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x.npz", "~nobody-of-that-name/x.txt", "~nobody-of-that-name/x"])
def test_the_home_of_a_user_who_is_not_there(name):
    with pytest.raises(UserError, match="there is no home directory ~nobody-of-that-name"):
        load(name)
