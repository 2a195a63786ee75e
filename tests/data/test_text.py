import subprocess
import sys

import numpy as np
import pytest

from unisono.data.dataset import DataOptions, Dataset, Raw
from unisono.data.loader import Loader
from unisono.data.preparation import prepare
from unisono.data.shards import ShardPlan
from unisono.data.sources import load
from unisono.data.text import TextOptions, sentences, vocabulary, windows
from unisono.errors import UserError

TEXT = "the cat saw the dog; the dog saw nothing. äöü €\n" * 20


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def read(tokens):
    """The characters behind tokens."""
    return "".join(vocabulary(TEXT)[token] for token in np.ravel(tokens))


@pytest.mark.parametrize("context", [1, 7, 64])
def test_windows_hold_the_text_in_order_and_targets_follow(corpus, context):
    dataset = load(f"{corpus}:context={context},test=0.25")
    cut = len(TEXT) - round(len(TEXT) * 0.25)
    for part, text in (("train", TEXT[:cut]), ("test", TEXT[cut:])):
        x, y = dataset.part(part)
        rows = (len(text) - 1) // context
        assert x.shape == y.shape == (rows, context)
        assert x.dtype == y.dtype == np.int64
        assert read(x) == text[: rows * context]
        assert read(y) == text[1 : rows * context + 1]
    assert dataset.tokens
    assert (dataset.shape, dataset.features) == ((context,), context)
    assert dataset.classes == dataset.outputs == len(set(TEXT))
    for array in dataset.arrays().values():
        assert not array.flags.writeable
        assert array.flags.c_contiguous


def test_other_data_are_no_tokens():
    assert not load("digits").tokens


def test_the_vocabulary_is_sorted_and_knows_characters_of_the_test_part():
    text = "ab" * 45 + "ax" * 5
    raw = windows("mine", text, TextOptions(context=3))
    assert vocabulary(text) == "abx"
    assert raw.classes == 3
    assert raw.arrays["train_y"].max() == 1
    assert raw.arrays["test_y"].max() == 2


def test_defaults(corpus):
    dataset = load(str(corpus))
    assert dataset.shape == (64,)
    assert (len(dataset.train_x), len(dataset.test_x)) == (863 // 64, 95 // 64)


def test_no_test_part_on_demand(corpus):
    dataset = load(f"{corpus}:context=8,test=0")
    assert dataset.test_x.shape == dataset.test_y.shape == (0, 8)
    assert dataset.test_x.dtype == np.int64
    assert len(dataset.train_x) == (len(TEXT) - 1) // 8


def test_a_validation_part_is_some_of_the_training_windows(corpus):
    whole = load(f"{corpus}:context=8")
    dataset = load(f"{corpus}:context=8", DataOptions(validation=0.2, seed=3))
    rows = len(whole.train_x)
    assert len(dataset.validation_x) == round(rows * 0.2)
    pairs = {(x.tobytes(), y.tobytes()) for x, y in zip(whole.train_x, whole.train_y, strict=True)}
    for part in ("train", "validation"):
        assert all((x.tobytes(), y.tobytes()) in pairs for x, y in zip(*dataset.part(part), strict=True))
    assert len(dataset.train_x) + len(dataset.validation_x) == rows
    assert np.array_equal(dataset.test_x, whole.test_x)


def test_a_mark_at_the_start_and_line_ends_of_other_systems_do_not_count(tmp_path, corpus):
    other = tmp_path / "other.txt"
    other.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    one, two = load(str(corpus)), load(str(other))
    assert one.classes == two.classes
    assert np.array_equal(one.train_x, two.train_x)


def test_paths_with_a_colon_or_a_txt_inside(tmp_path):
    folder = tmp_path / "a.txt:b"
    folder.mkdir()
    (folder / "c.txt").write_text(TEXT)
    assert load(f"{folder}/c.txt:context=5").shape == (5,)
    assert load(f"{folder}/c.txt").shape == (64,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("contxt=3", r"unknown option of corpus.txt: 'contxt'; there are: context, test.*did you mean 'context'"),
        ("64", "unknown option of corpus.txt: '64'"),
        ("context=many", "context=many: 'many' is not a whole number\nHINT: for example context=64"),
        ("context=", "'' is not a whole number"),
        ("context=0", "context is 0\nHINT: give 1 or more"),
        ("test=1", "test is 1\nHINT: give a share"),
        ("test=nan", "test is nan"),
        ("test=half", "'half' is not a number"),
        ("context=864", "the training part has 864 characters, a window needs 865"),
        ("context=800", "the test part has 96 characters, a window needs 801"),
    ],
)
def test_mistakes_in_options_are_named(corpus, arguments, says):
    with pytest.raises(UserError, match=f"(?s){says}"):
        load(f"{corpus}:{arguments}")


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (None, "No such file"),
        (b"", "0 characters long and has 0 different ones"),
        (b"aaaa" * 100, "400 characters long and has 1 different ones"),
        (b"caf\xe9 au lait", "byte 3 is not UTF-8.*\nHINT: convert the file: iconv"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path, contents, says):
    path = tmp_path / "mine.txt"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(UserError, match=f"(?s)mine.txt.*{says}"):
        load(str(path))


@pytest.mark.parametrize("kind", ["unit", "standard"])
def test_text_is_not_scaled(corpus, kind):
    assert load(str(corpus), DataOptions(normalise="none")).tokens
    with pytest.raises(UserError, match=f"is text: normalisation {kind} would spoil it"):
        load(str(corpus), DataOptions(normalise=kind))


GOOD = {"train_x": np.array([[0, 1], [2, 3]]), "train_y": np.array([[1, 2], [3, 0]])}


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"train_x": np.array([[0, 1], [2, 4]])}, "train_x row 1, column 1: token 4 is out of range: there are 4"),
        ({"train_y": np.array([[0, -1], [2, 1]])}, "train_y row 0, column 1: token -1 is out of range"),
        ({"train_x": np.zeros((2, 2))}, r"train_x is float64 of shape \(2, 2\), expected whole numbers"),
        ({"train_y": np.array([1, 2])}, r"train_y is int64 of shape \(2,\)"),
        ({"train_y": np.array([[1], [2]])}, r"train_y is int64 of shape \(2, 1\)"),
        ({"train_y": np.array([[1, 2]])}, "train_x has 2 rows, train_y has 1"),
        ({"test_x": np.zeros((1, 3), int), "test_y": np.zeros((1, 3), int)}, "test_x has 3"),
    ],
)
def test_tokens_are_checked(arrays, says):
    with pytest.raises(UserError, match=says):
        prepare(Raw("mine", GOOD | arrays, 4, tokens=True), DataOptions())


def test_a_function_may_return_a_dataset_of_tokens(tmp_path, corpus):
    script = tmp_path / "mine.py"
    script.write_text(
        f"from unisono.data.sources import load\ndef data():\n    return load('{corpus}:context=8,test=0')\n"
    )
    mine, theirs = load(f"{script}:data"), load(f"{corpus}:context=8,test=0")
    assert (mine.tokens, mine.classes, mine.shape) == (True, theirs.classes, (8,))
    for name, array in mine.arrays().items():
        assert np.array_equal(array, theirs.arrays()[name])


def test_a_dataset_of_whole_numbers_with_labels_is_no_text():
    from unisono.data.user_data import _from_dataset

    x, y = np.arange(6).reshape(6, 1), np.arange(6).reshape(6, 1) % 3
    dataset = prepare(_from_dataset("mine", Dataset("mine", x, y, x[:0], y[:0], x, y, 3, (1,))), DataOptions())
    assert not dataset.tokens
    assert dataset.train_y.tolist() == [0, 1, 2, 0, 1, 2]


def test_the_loader_deals_tokens(corpus):
    dataset = load(f"{corpus}:context=4")
    plan = ShardPlan(len(dataset.train_x), 8, 4, seed=0)
    order = plan.order(0)
    (group,) = Loader(plan, dataset.train_x, dataset.train_y).groups(order, 1, range(1, 4))
    assert group.x.shape == group.y.shape == (3, 2, 4)
    assert group.x.dtype == np.int64
    assert np.array_equal(group.y.reshape(6, 4), dataset.train_y[order[10:16]])


def test_made_up_text_depends_on_the_seed_alone():
    assert sentences(300, 5) == sentences(3000, 5)[:300]
    assert sentences(300, 5) != sentences(300, 6)
    assert sentences(80, 0) == "The green cats like the bright sailors. The young cat finds the dog by the road,"
    assert len(sentences(1, 0)) == 1


def test_synthetic_text():
    dataset = load("synthetic-text:characters=5000,context=32")
    assert (dataset.train_x.shape, dataset.test_x.shape) == ((4499 // 32, 32), (499 // 32, 32))
    assert 20 < dataset.classes < 60
    spec = "synthetic-text:characters=5000,context=32"
    assert np.array_equal(load(spec, DataOptions(seed=4)).train_x, load(f"{spec},seed=4").train_x)
    assert not np.array_equal(load(spec, DataOptions(seed=4)).train_x, load(f"{spec},seed=0").train_x)
    assert load("synthetic-text").shape == (64,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("rows=5", "unknown option of synthetic-text: 'rows'; there are: characters, context, test, seed"),
        ("characters=0", "synthetic-text: characters is 0\nHINT: give 1 or more"),
        ("seed=-2", "synthetic-text: seed is -2\nHINT: give 0 or more"),
        ("characters=20", "the training part has 18 characters, a window needs 65"),
    ],
)
def test_mistakes_in_synthetic_text_are_named(arguments, says):
    with pytest.raises(UserError, match=says):
        load(f"synthetic-text:{arguments}")


def test_text_needs_no_torch():
    code = "import sys; from unisono.data.sources import load; load('synthetic-text'); print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "False\n"
