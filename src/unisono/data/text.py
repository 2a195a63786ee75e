"""Text for language models: characters become numbers, the text becomes windows of one length.

The one idea: the vocabulary is the sorted characters of the text itself, so a file alone decides what each number
means; windows do not overlap, and the target of each character is the one that follows it.

    load_text("corpus.txt:context=128,test=0.05")        # --data corpus.txt:context=128,test=0.05

`context` is the length of a window (64), `test` the share of the text, from its end, that is the test part (0.1; 0: no
test part). What does not fill a window at the end of a part is left out.

Limits: the file is a regular one, UTF-8, and read whole; each of its characters takes 16 bytes of memory as numbers.
Characters that only the test part has are in the vocabulary, too.
"""

import os
from dataclasses import dataclass, fields
from typing import Any, TypeVar, final

import numpy as np

from unisono.data.raw import Raw
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user, open_file
from unisono.resources import check_memory

_Options = TypeVar("_Options")


_MOST_DIGITS = 40
MEMORY_A_CHARACTER = 48
"""Bytes, while windows are made: the text, its numbers, and windows of them."""


@final
@dataclass(frozen=True)
class TextOptions:
    """What stands after `corpus.txt:`."""

    context: int = 64
    test: float = 0.1


def load_text(spec: str) -> Raw:
    """The windows of the file that `spec`, "path.txt" or "path.txt:context=64", names."""
    stem, _, rest = spec.rpartition(".txt")
    path = expand_user(f"{stem}.txt")
    options = parse(path.name, rest.removeprefix(":"), TextOptions)
    try:
        with open_file(path) as file:
            nbytes = os.fstat(file.fileno()).st_size
            check_memory(f"{path}: {nbytes:,} bytes of text", nbytes * MEMORY_A_CHARACTER, "give a shorter text")
            text = file.read().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", hint="is the path right, seen from here?") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8 ({error.reason})",
            hint=f"convert the file: iconv -f LATIN1 -t UTF-8 {path.name}",
        ) from None
    return windows(spec, text, options)


def vocabulary(text: str) -> str:
    """The characters of a text, each once; a character's place is its number.

    >>> vocabulary("hello")
    'ehlo'
    """
    return "".join(sorted(set(text)))


def windows(name: str, text: str, options: TextOptions) -> Raw:
    """Training and test windows: x (rows, context) int64, y the same shifted by one.

    >>> raw = windows("hello", "hello hello", TextOptions(context=3, test=0))
    >>> raw.arrays["train_x"].tolist(), raw.arrays["train_y"].tolist()
    ([[2, 1, 3], [3, 4, 0], [2, 1, 3]], [[1, 3, 3], [4, 0, 2], [1, 3, 3]])
    """
    if options.context < 1:
        raise UserError(f"{name}: context is {options.context}", hint="give 1 or more")
    if not 0 <= options.test < 1:
        raise UserError(f"{name}: test is {options.test:g}", hint="give a share from 0 to below 1, as 0.1")
    characters = vocabulary(text)
    if len(characters) < 2:
        raise UserError(
            f"{name}: the text is {len(text)} characters long and has {len(characters)} different ones",
            hint="give a text with at least two different characters",
        )
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    known = np.frombuffer(characters.encode("utf-32-le"), "<u4")
    tokens = np.searchsorted(known, codes)
    start = len(tokens) - round(len(tokens) * options.test)
    arrays: dict[str, np.ndarray] = {}
    arrays["train_x"], arrays["train_y"] = _cut(name, "training", tokens[:start], options.context)
    if options.test:
        arrays["test_x"], arrays["test_y"] = _cut(name, "test", tokens[start:], options.context)
    return Raw(name, arrays, len(characters), tokens=True, vocabulary=characters)


def parse(name: str, arguments: str, kind: type[_Options]) -> _Options:
    """'context=64,test=0.1' -> a dataclass of numbers; a `UserError` for what is not understood.

    >>> parse("corpus.txt", "context=32", TextOptions).context
    32
    """
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    given: dict[str, int | float] = {}
    for word in filter(None, (word.strip() for word in arguments.split(","))):
        key, _, text = (piece.strip() for piece in word.partition("="))
        if key not in types:
            raise unknown_name(f"option of {name}:", key, types)
        try:
            given[key] = number_of(types[key], text)
        except ValueError as error:
            raise UserError(f"{name}: {word[:80]}: {error}", hint=f"for example {key}={getattr(kind(), key)}") from None
    return kind(**given)


def number_of(kind: type, text: str) -> Any:
    """An option's value; a `ValueError` with a plain reason for what is no such number, or one of too many digits."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:_MOST_DIGITS]!r}... is longer than {_MOST_DIGITS} characters")
    try:
        return kind(text)
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise ValueError(f"{text!r} is not {what}") from None


def _cut(name: str, part: str, tokens: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    rows = (len(tokens) - 1) // context
    if rows < 1:
        raise UserError(
            f"{name}: the {part} part has {len(tokens)} characters, a window needs {context + 1}",
            hint="give a longer text, a smaller context=, or another test= (0: no test part)",
        )
    x, y = tokens[: rows * context], tokens[1 : rows * context + 1]
    return x.reshape(rows, context).astype(np.int64), y.reshape(rows, context).astype(np.int64)
