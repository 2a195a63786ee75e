import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.data.image_server import idx_bytes, image_arrays, image_files, image_set
from unisono.data import mnist_sets
from unisono.data.dataset import DataOptions
from unisono.data.sources import load
from unisono.errors import UserError

REAL = Path(__file__).parents[3] / "shared" / "data"
FIRST = "train-images-idx3-ubyte"


def put(directory, arrays, packed=True):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in image_files(arrays).items():
        path = directory / (name if packed else name.removesuffix(".gz"))
        path.write_bytes(content if packed else gzip.decompress(content))


def test_images_are_fetched_once_and_then_found(small_mnist, server):
    dataset = load("mnist")
    assert dataset.shape == (4, 3)
    assert (dataset.classes, dataset.features, dataset.outputs) == (10, 12, 10)
    expected = small_mnist["train_x"].reshape(30, 12).astype(np.float32)
    low, high = expected.min(), expected.max()
    assert np.array_equal(dataset.train_x, (expected - low) / (high - low))
    assert dataset.test_y.tolist() == list(range(10))
    assert len(server.asked) == 4
    assert load("mnist").train_x.tobytes() == dataset.train_x.tobytes()
    assert len(server.asked) == 4
    assert mnist_sets.find("mnist", "") == mnist_sets.cache_dir("mnist")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_files_in_the_given_directory_come_first(small_mnist, server, tmp_path, packed, inside):
    put(tmp_path / inside, small_mnist, packed)
    put(mnist_sets.cache_dir("mnist"), image_arrays(seed=1))  # would be refused
    assert load("mnist", DataOptions(data_dir=str(tmp_path))).train_x.shape == (30, 12)
    assert server.asked == []


def test_files_of_the_system_package_are_found(small_mnist, server, tmp_path, monkeypatch):
    put(tmp_path / "system", small_mnist)
    monkeypatch.setitem(
        mnist_sets.SETS, "mnist", image_set(small_mnist, server.url, (str(tmp_path / "system"), "/nowhere"))
    )
    assert mnist_sets.find("mnist", str(tmp_path / "empty")) == tmp_path / "system"
    load("mnist")
    assert server.asked == []


def test_fetched_files_go_into_the_given_directory_and_only_missing_ones(small_mnist, server, tmp_path):
    put(tmp_path / "mine", small_mnist)
    (tmp_path / "mine" / f"{FIRST}.gz").unlink()
    load("mnist", DataOptions(data_dir=str(tmp_path / "mine")))
    assert [name for name, _ in server.asked] == [f"{FIRST}.gz"]
    assert not mnist_sets.cache_dir("mnist").exists()


def test_a_directory_that_is_not_there_is_neither_made_nor_filled(small_mnist, server, tmp_path):
    with pytest.raises(UserError, match=r"(?s)typo.*HINT: .*point --data-dir"):
        load("mnist", DataOptions(data_dir=str(tmp_path / "typo")))
    assert server.asked == []
    assert not (tmp_path / "typo").exists()


def test_the_files_of_another_set_are_recognised(small_mnist, server, tmp_path, monkeypatch):
    put(tmp_path, small_mnist)
    mine, other = mnist_sets.SETS["mnist"], mnist_sets.SETS["fashion-mnist"]
    swapped = {"mnist": replace(mine, sha256=other.sha256), "fashion-mnist": replace(other, sha256=mine.sha256)}
    monkeypatch.setattr(mnist_sets, "SETS", swapped)
    with pytest.raises(UserError, match="HINT: this is fashion-mnist's: give --data fashion-mnist"):
        load("mnist", DataOptions(data_dir=str(tmp_path)))


def test_another_compression_of_the_same_images_is_right(small_mnist, server):
    server.files = image_files(small_mnist, level=1)
    assert load("mnist").test_x.shape == (10, 12)


def as_it_comes(arrays):
    return {
        key: mnist_sets.Packed(len(content), hashlib.sha256(content).hexdigest())
        for key, content in zip(mnist_sets.NAMES, image_files(arrays).values(), strict=True)
    }


def test_what_a_sets_own_address_serves_is_compared_before_it_is_unpacked(small_mnist, server, monkeypatch):
    packed = as_it_comes(small_mnist)
    monkeypatch.setitem(mnist_sets.SETS, "mnist", replace(mnist_sets.SETS["mnist"], packed=packed))
    assert load("mnist").test_x.shape == (10, 12)
    mnist_sets.cache_dir("mnist").joinpath(f"{FIRST}.gz").unlink()
    content = bytearray(server.files[f"{FIRST}.gz"])
    content[-9] ^= 1
    server.files[f"{FIRST}.gz"] = bytes(content)
    monkeypatch.setattr(mnist_sets.idx, "read", lambda path: pytest.fail("unpacked"))
    with pytest.raises(UserError, match=f"SHA-256 as it came .*, expected {packed['train_x'].sha256}"):
        load("mnist")
    server.files[f"{FIRST}.gz"] = bytes(content) + b"more"
    with pytest.raises(UserError, match=f"expected has at most {len(content):,}"):
        load("mnist")


def test_another_address_may_have_another_compression(small_mnist, server, monkeypatch):
    own = replace(mnist_sets.SETS["mnist"], base_url="http://127.0.0.1:1", packed=as_it_comes(small_mnist))
    monkeypatch.setitem(mnist_sets.SETS, "mnist", own)
    server.files = image_files(small_mnist, level=1)
    assert load("mnist", DataOptions(base_url=server.url)).test_x.shape == (10, 12)


def test_a_bomb_from_another_address_is_not_unpacked(small_mnist, server):
    server.files[f"{FIRST}.gz"] = gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 1 << 30) + bytes(1 << 22))
    with pytest.raises(UserError, match="not believable: at most 67,108,864 are read"):
        load("mnist")


@pytest.mark.parametrize("name", mnist_sets.SETS)
def test_sets_come_over_https(name):
    assert mnist_sets.SETS[name].base_url.startswith("https://")
    assert mnist_sets.SETS[name].packed.keys() == mnist_sets.SETS[name].sha256.keys() == mnist_sets.NAMES.keys()


def test_a_file_with_other_contents_is_refused_by_name_with_both_checksums(small_mnist, server, tmp_path):
    put(tmp_path, small_mnist)
    wrong = small_mnist["train_x"].copy()
    wrong[3, 2, 1] ^= 1
    (tmp_path / f"{FIRST}.gz").write_bytes(gzip.compress(idx_bytes(wrong)))
    with pytest.raises(UserError) as caught:
        load("mnist", DataOptions(data_dir=str(tmp_path)))
    message = str(caught.value)
    assert f"{tmp_path}/{FIRST}.gz: not the file of mnist" in message
    assert mnist_sets.SETS["mnist"].sha256["train_x"] in message
    assert "HINT: is it damaged? unisono data fetch mnist" in message
    assert server.asked == []


def test_a_wrong_file_from_the_server_is_refused_and_not_kept(small_mnist, server):
    server.files[f"{FIRST}.gz"] = gzip.compress(idx_bytes(image_arrays(seed=2)["train_x"]))
    with pytest.raises(UserError, match="could not be fetched") as caught:
        load("mnist")
    assert "SHA-256 of the unpacked contents" in str(caught.value)
    assert f"{server.url}/{FIRST}.gz" in str(caught.value)
    assert [path.name for path in mnist_sets.cache_dir("mnist").iterdir()] == [".lock"]


def test_what_was_looked_for_and_where_when_fetching_is_not_allowed(small_mnist, server):
    with pytest.raises(UserError) as caught:
        load("mnist", DataOptions(data_dir="/some/where", download=False))
    for words in (f"{FIRST}[.gz]", "/some/where/mnist", ".cache/unisono/mnist", "unisono data fetch mnist"):
        assert words in str(caught.value)
    assert server.asked == []


def test_another_address(small_mnist, server, monkeypatch):
    monkeypatch.setitem(mnist_sets.SETS, "mnist", image_set(small_mnist, "http://127.0.0.1:1"))
    assert load("mnist", DataOptions(base_url=f"{server.url}/")).train_x.shape == (30, 12)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_images_have_the_published_checksums(name):
    if mnist_sets.find(name, str(REAL)) is None:
        pytest.skip(f"{name} is not in {REAL}")
    dataset = load(name, DataOptions(data_dir=str(REAL), validation=0.1))
    assert [len(dataset.part(part)[0]) for part in ("train", "validation", "test")] == [54000, 6000, 10000]
    assert (dataset.features, dataset.shape, dataset.classes) == (784, (28, 28), 10)
    assert (dataset.train_x.min(), dataset.train_x.max()) == (0, 1)
    assert np.bincount(dataset.test_y).min() >= 892
