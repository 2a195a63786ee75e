"""The user's own code: `path.py:factory` returns the data.

The one idea: the factory returns a `Dataset`, or a dict of arrays by the usual names, and what it returns is checked
like any other source. Whatever goes wrong in it is one message with file and line.

    # mine.py
    def data():
        return {"train_x": x, "train_y": y, "test_x": u, "test_y": v, "classes": 3}       # classes may be left out

    unisono data check mine.py:data

The file runs with the rights of the user, as `python mine.py` would; its directory is importable meanwhile.
"""

import importlib.util
import math
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from unisono.data.dataset import ARRAYS, Dataset
from unisono.data.raw import Raw, collect
from unisono.errors import UnisonoError, UserError, unknown_name


def load_own(spec: str) -> Raw:
    """Calls the factory of `path.py:factory` without arguments."""
    file, _, name = spec.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise UserError(f"{spec}: there is no file {path}", hint="is the path right, seen from here?")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        made = _call(path, name)
    except UnisonoError:
        raise
    except SyntaxError as error:
        raise UserError(f"{error.filename}:{error.lineno}: {error.msg}", hint="correct the file") from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = [frame for frame in frames if frame.filename == str(path)][-1:] or frames[-1:]
        raise UserError(
            f"{spec} failed at {where[0].filename}:{where[0].lineno}: {type(error).__name__}: {error}",
            hint="correct it; calling the function in Python shows the whole traceback",
        ) from None
    finally:
        with suppress(ValueError):  # the user's code may have changed it
            sys.path.remove(str(path.resolve().parent))
    if isinstance(made, Dataset):
        return _from_dataset(spec, made)
    return _from_mapping(spec, made)


def _call(path: Path, name: str) -> Any:
    module = _import(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown_name(f"function of {path}", name, functions)
    return factory()


def _import(path: Path) -> ModuleType:
    # Under a name of our own: mine.py may be called like a module that exists.
    spec = importlib.util.spec_from_file_location(f"unisono_own_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file", hint="give path.py:factory")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickles of the user's look themselves up there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[module.__name__]
    return module


def _from_dataset(spec: str, made: Dataset) -> Raw:
    arrays = {key: np.asarray(array) for key, array in made.arrays().items() if len(array)}
    for key in ("train_x", "validation_x", "test_x"):
        if key in arrays and arrays[key].shape[1:] != (math.prod(made.shape),):
            raise UserError(
                f"{spec}: {key} has shape {arrays[key].shape}, but one sample has shape {made.shape}",
                hint="give x as (rows, features), and as shape one whose product is the number of features",
            )
        if key in arrays:
            arrays[key] = arrays[key].reshape(-1, *made.shape)
    return Raw(made.name, collect(spec, arrays), made.classes)


def _from_mapping(spec: str, made: Any) -> Raw:
    if not isinstance(made, Mapping):
        raise UserError(
            f"{spec} returned {type(made).__name__}, not a Dataset or a dict of arrays",
            hint=f"return a dict with train_x and train_y; it may also have {', '.join(ARRAYS[2:])}, classes",
        )
    for key in made:
        if key not in (*ARRAYS, "classes"):
            raise unknown_name(f"key in what {spec} returned:", str(key), [*ARRAYS, "classes"])
    try:
        classes = index(made.get("classes", 0))
    except TypeError:
        classes = -1
    if classes < 0:
        raise UserError(
            f"{spec} returned classes={made['classes']!r}", hint="give a whole number, or leave it out: it is counted"
        )
    return Raw(spec, collect(spec, made), classes)
