"""`unisono data` as a user meets it."""

import numpy as np
import pytest

from support.cli.forked_command import forked
from support.cli.train_command import train
from support.data.image_server import image_arrays, image_files, image_set, serving
from unisono.cli.main import app
from unisono.data import mnist_sets


def called(capsys, *arguments: str) -> tuple[str, str]:
    """In this process, where sets can be replaced: what was printed."""
    app(["data", *arguments], exit_on_error=False, print_error=False, result_action="return_value")
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.parametrize("name", ["list", "fetch", "check"])
def test_each_command_shows_an_example_of_its_own(name):
    shown = forked("data", name, "--help").stdout
    assert shown.count("Example: ") == 1
    example = shown[shown.index("Example: unisono ") :].removeprefix("Example: unisono ").split()
    assert example[:2] == ["data", name]
    app.parse_args(example, exit_on_error=False, print_error=False)


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Serves a small set, which `mnist` is meanwhile."""
    arrays = image_arrays()
    with serving() as running:
        running.files = image_files(arrays)
        monkeypatch.setitem(mnist_sets.SETS, "mnist", image_set(arrays, running.url))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        yield running


def test_list_says_what_there_is_and_where():
    ended = forked("data", "list")
    assert ended.returncode == 0, ended.stderr
    for words in ("digits", "bundled", "mnist", "fashion-mnist", "synthetic:regression", "DIRECTORY", "FILE.npz"):
        assert words in ended.stdout


def test_check_shows_shapes_classes_and_checksums():
    ended = forked("data", "check", "digits")
    assert ended.returncode == 0, ended.stderr
    for words in ("checksum ok", "(1442, 64) float32", "(355,) int64", "8 x 8", "10 classes", "140 (class 8)"):
        assert words in ended.stdout


def test_check_of_a_directory(capsys, tmp_path):
    np.save(tmp_path / "train_x.npy", np.arange(8.0).reshape(4, 2))
    np.save(tmp_path / "train_y.npy", np.arange(8.0).reshape(4, 2))
    shown, _ = called(capsys, "check", str(tmp_path))
    assert "(4, 2) float32" in shown
    assert "regression with 2 outputs: 0 to 7" in shown
    assert "test" not in shown.split(str(tmp_path))[1]


OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        assert tuple(shape) == (3, 8, 6), shape
        self.conv, self.last = nn.Conv2d(3, 2, 3), nn.Linear(2 * 6 * 4, outputs)
    def forward(self, x):
        assert x.shape[1:] == (3, 8, 6), x.shape
        return self.last(self.conv(x).flatten(1))

def net(shape, outputs):
    return Net(shape, outputs)
"""


def test_colour_images_are_what_the_documentation_says(tmp_path):
    """Channels first, of bytes, in every network; channels last are refused."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 3, 8, 6), np.uint8), rng.integers(0, 4, 40)
    np.savez(tmp_path / "first.npz", train_x=x, train_y=y)
    np.savez(tmp_path / "last.npz", train_x=x.transpose(0, 2, 3, 1), train_y=y)
    (tmp_path / "mine.py").write_text(OWN)
    words = ["--epochs", "1", "--normalise", "standard", "--data", "first.npz"]
    for model in ("mine.py:net", "cnn:4", "mlp:8"):
        ended = train(*words, "--model", model, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    told = forked("data", "check", "first.npz", cwd=tmp_path).stdout
    assert "a sample: 3 x 8 x 6, as an image: channels x height x width (144 features)" in told
    refused = forked("train", "--model", "cnn:4", "--data", "last.npz", cwd=tmp_path)
    assert refused.returncode == 2
    assert "shape (8, 6, 3) as 8 channels of 6 x 3 pixels: their channels come last" in refused.stderr
    assert "HINT: put the channels first: x.transpose(0, 3, 1, 2)" in refused.stderr


def test_what_is_doubtful_is_a_warning_and_no_error(tmp_path):
    x, y = np.zeros((30, 8, 6, 3), np.uint8), np.arange(30) % 10 + 1
    np.savez(tmp_path / "mine.npz", train_x=x, train_y=y)
    ended = forked("data", "check", "mine.npz", cwd=tmp_path)
    assert ended.returncode == 0
    assert "11 classes" in ended.stdout
    assert ended.stderr.count("Warning: ") == ended.stderr.count("HINT: ") == 2
    assert "labels count from 1" in ended.stderr
    assert "channels come last" in ended.stderr
    assert forked("data", "check", "digits").stderr == ""


def test_fetch_then_check(capsys, server, tmp_path):
    shown, progress = called(capsys, "fetch", "mnist", "--data-dir", str(tmp_path / "d"))
    assert shown == f"mnist: fetched into {tmp_path}/d, checksums ok\n"
    assert progress.count("fetching ") == 4
    shown, progress = called(capsys, "fetch", "mnist", "--data-dir", str(tmp_path / "d"))
    assert (shown, progress) == (f"mnist: is already in {tmp_path}/d, checksums ok\n", "")
    assert len(server.asked) == 4
    shown, _ = called(capsys, "check", "mnist", "--data-dir", str(tmp_path / "d"))
    assert f"mnist: {tmp_path}/d, checksums ok" in shown
    assert "(30, 12) float32" in shown
    shown, _ = called(capsys, "list", "--data-dir", str(tmp_path / "d"))
    assert f"{tmp_path}/d\n" in shown


def test_fetch_into_the_cache_from_another_address(capsys, server, tmp_path):
    shown, _ = called(capsys, "fetch", "mnist", "--base-url", server.url)
    assert shown == f"mnist: fetched into {tmp_path}/home/.cache/unisono/mnist, checksums ok\n"


def test_what_is_here_anyway_needs_no_fetching(capsys):
    assert called(capsys, "fetch", "digits")[0] == "digits: bundled, there is nothing to fetch\n"
