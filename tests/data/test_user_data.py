import sys

import numpy as np
import pytest

from unisono.data.sources import load
from unisono.errors import UserError

GOOD = """
import numpy as np
import helper_of_mine

def data():
    x = np.arange(12.0).reshape(6, 2)
    test = {"test_x": x[:2], "test_y": np.array([[1], [0]])}
    return {"train_x": x, "train_y": [0, 1, 2] * 2} | test | helper_of_mine.more
"""


def write(tmp_path, text, helper="more = {}"):
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "helper_of_mine.py").write_text(helper)
    return f"{tmp_path}/mine.py:data"


@pytest.fixture(autouse=True)
def forget_helper():
    yield
    sys.modules.pop("helper_of_mine", None)


def test_a_dict_of_arrays(tmp_path):
    before = list(sys.path)
    dataset = load(write(tmp_path, GOOD))
    assert (dataset.classes, dataset.features) == (3, 2)
    assert dataset.test_y.tolist() == [1, 0]
    assert sys.path == before
    assert "unisono_own_mine" not in sys.modules


def test_the_number_of_classes_may_be_given(tmp_path):
    helper = "import numpy as np; more = {'classes': np.int64(7)}"
    assert load(write(tmp_path, GOOD, helper)).classes == 7


def test_a_dataset(tmp_path):
    text = """
from dataclasses import replace
import unisono.data.sources as sources
def data():
    return replace(sources.load("digits"), name="my digits")
"""
    dataset, digits = load(write(tmp_path, text)), load("digits")
    assert (dataset.name, dataset.shape, dataset.classes) == ("my digits", (8, 8), 10)
    assert np.array_equal(dataset.train_x, digits.train_x)
    assert np.array_equal(dataset.test_y, digits.test_y)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def data(:\n  pass", r"mine\.py:1: .*\nHINT: correct the file"),
        (
            "def data():\n  return 3",
            "returned int, not a Dataset or a dict of arrays\nHINT: return a dict with train_x",
        ),
        ("def data():\n  return {'train_z': 3}", "unknown key in what .* returned: 'train_z'"),
        ("def data():\n  return {'train_x': [[1]], 'train_y': [1], 'classes': 1.5}", r"returned classes=1\.5"),
        ("def data():\n  return {'train_x': [[1], [1, 2]], 'train_y': [1, 2]}", "train_x cannot be made an array"),
        ("def data():\n  return {'train_x': [['a']], 'train_y': [1]}", "train_x is of type <U1, not numbers"),
        ("def data():\n  return {}", "train_x and train_y are missing; it holds nothing"),
        (
            "import math\n\ndef data():\n  math.sqrt(-1)",
            r"failed at .*mine\.py:4, in data: ValueError: math domain error",
        ),
        ("import sys\nsys.exit('no')", r"failed at .*mine\.py:2, in <module>: SystemExit: no"),
        ("import not_a_module_at_all", r"mine\.py:1, in <module>: ModuleNotFoundError"),
        ("def dota(): pass", "unknown function of .*mine.py 'data'; there are: dota"),
        ("data = 3", "unknown function"),
        (
            "from unisono.data.dataset import Dataset\nimport numpy as np\n"
            "def data():\n  x = np.zeros((2, 3)); return Dataset('a', x, x, x, x, x, x, 0, (2,))",
            r"train_x has shape \(2, 3\), but one sample has shape \(2,\)",
        ),
    ],
)
def test_mistakes_are_one_message(tmp_path, text, message):
    before = list(sys.path)
    with pytest.raises(UserError, match=message) as caught:
        load(write(tmp_path, text))
    assert "HINT" in str(caught.value)
    assert sys.path == before


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*nothing\.py"):
        load(f"{tmp_path}/nothing.py:data")


@pytest.mark.parametrize("kind", ["Dataset", "IterableDataset"])
def test_a_torch_dataset_is_led_to_the_users_own_loop(tmp_path, kind):
    pytest.importorskip("torch")
    text = (
        f"from torch.utils.data import {kind}\nclass Mine({kind}):\n  def __iter__(self):\n    return iter([])\n"
        "def data():\n  return Mine()\n"
    )
    with pytest.raises(UserError, match=r"data returned Mine, a torch Dataset.*\nHINT: return a dict.*world\.batches"):
        load(write(tmp_path, text))
