"""Fixtures for everything that fetches: no test of this folder touches the network or the user's home."""

from collections.abc import Iterator

import pytest

from support.data.image_server import Server, image_arrays, image_files, image_set, serving
from unisono.data import mnist_sets


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def small_mnist(server, monkeypatch, tmp_path):
    """`mnist` is a small set, served by `server`; the home directory is empty. Returns the arrays."""
    arrays = image_arrays()
    server.files = image_files(arrays)
    monkeypatch.setitem(mnist_sets.SETS, "mnist", image_set(arrays, server.url))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return arrays
