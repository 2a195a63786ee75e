"""Data by name: what may stand after `--data`, and the one function that loads it.

    load("digits"); load("mnist", DataOptions(validation=0.1)); load("synthetic:regression,rows=1000,features=10")
    load("my-directory"); load("my.npz"); load("mine.py:factory"); load("my.txt:context=64")

The one idea: a table of names; each entry finds arrays, and `prepare` makes the same Dataset of all of them. A name of
the table wins over a directory of that name: write ./mnist for the directory.
"""

from collections.abc import Callable
from pathlib import Path

from unisono.data.dataset import DataOptions, Dataset, Raw
from unisono.data.preparation import prepare
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user
from unisono.user_code.function import without_function

ABOUT = {
    "digits": "handwritten digits, 8 x 8: 1442 to train, 355 to test, 10 classes",
    "mnist": "handwritten digits, 28 x 28: 60,000 to train, 10,000 to test, 10 classes",
    "fashion-mnist": "articles of clothing, 28 x 28: 60,000 to train, 10,000 to test, 10 classes",
    "synthetic": "made up: synthetic:regression,rows=1000,noise=0.1 or synthetic:classes=20,difficulty=0.5",
    "synthetic-text": "made-up sentences, for gpt: synthetic-text:characters=50000,context=64",
}
OWN = {
    "DIRECTORY": "train_x.npy, train_y.npy, test_x.npy, test_y.npy, or these in train_data/ and test_data/",
    "FILE.npz": "arrays of these names",
    "FILE.txt": "text, for gpt: FILE.txt:context=64,test=0.1",
    "FILE.py:FUNCTION": "a function that returns a dict of such arrays, or a Dataset",
}
IN_DATA_DIR = ("mnist", "fashion-mnist")
"""Those whose files --data-dir holds."""
_DEFAULTS = DataOptions()


def load(spec: str, options: DataOptions = _DEFAULTS) -> Dataset:
    """The data that `spec` names: checked, split, float32 (text: int64)."""
    check_data_dir(spec, options.data_dir)
    return prepare(find(spec)(options), options)


def check_data_dir(spec: str, data_dir: str) -> None:
    """A `UserError` for a directory that these data are not read from: a user who gives one wants to train on it."""
    if data_dir and spec not in IN_DATA_DIR:
        raise UserError(
            f"--data-dir {data_dir} with --data {spec}, which does not read it: only {' and '.join(IN_DATA_DIR)} do",
            hint="leave --data-dir out"
            if spec == data_dir
            else f"did you mean --data {data_dir}? Else leave --data-dir out, or name the data that lie there",
        )


def find(spec: str) -> Callable[[DataOptions], Raw]:
    """What will deliver the data; a `UserError` that lists the names if there is no such thing."""
    # What is not used is not imported.
    name, _, arguments = spec.partition(":")
    if name in ABOUT:
        return _named(name, arguments)
    if ".py:" in spec:
        from unisono.data.user_data import load_user_data

        return lambda options: load_user_data(spec)
    if spec.endswith(".py") and not Path(spec).is_dir():
        raise without_function("--data", spec)
    if spec.endswith(".txt") or ".txt:" in spec:
        from unisono.data.text import load_text

        return lambda options: load_text(spec)
    if spec.endswith((".npz", ".npy")) or "/" in spec or (spec and Path(spec).exists()):
        from unisono.data.arrays import load_arrays

        return lambda options: load_arrays(expand_user(spec))
    raise unknown_name("data", spec, [*ABOUT, *OWN])


def whereabouts(name: str, data_dir: str = "") -> str:
    """Where the data of a name of the table are, or how to get them; nothing is read."""
    if name in ("digits", "synthetic", "synthetic-text"):
        return "bundled" if name == "digits" else "made on the spot"
    from unisono.data import mnist_sets

    return str(mnist_sets.find(name, data_dir) or f"not here: {mnist_sets.how_to_get(name)}")


def must_be_fetched(spec: str, data_dir: str = "") -> bool:
    """Whether loading them would ask a server; nothing is read."""
    if spec not in IN_DATA_DIR:
        return False
    from unisono.data import mnist_sets

    return mnist_sets.find(spec, data_dir) is None


def origin(spec: str, options: DataOptions) -> str:
    """Where data that were loaded came from."""
    if spec == "digits":
        return "bundled, checksum ok"
    if spec in IN_DATA_DIR:
        return f"{whereabouts(spec, options.data_dir)}, checksums ok"
    return "ok"


def _named(name: str, arguments: str) -> Callable[[DataOptions], Raw]:
    if name == "synthetic":
        from unisono.data.synthetic import load_synthetic

        return lambda options: load_synthetic(arguments, options)
    if name == "synthetic-text":
        from unisono.data.text import load_sentences

        return lambda options: load_sentences(arguments, options)
    if arguments:
        raise UserError(f"{name} takes no options, {arguments!r} was given", hint=f"write {name}")
    if name == "digits":
        from unisono.data.arrays import load_digits

        return lambda options: load_digits()
    from unisono.data.mnist_sets import load_images

    return lambda options: load_images(name, options)
