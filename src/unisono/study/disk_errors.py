"""A disk that takes nothing more: one message that says what, where and what helps; what is finished is kept.

    with writing(path): table.write(rows, path, "scale")
    end_if_refused(record, run)

The one idea: a full disk is no fault of a cell. A run that failed because its directory could not be written is not
written down as one that cannot be, and the study ends: after there is room the same command goes on with that run.

Limits: a disk of others (for data, for /tmp) that is full is a reason of the cell, as any other failure.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from unisono.errors import UserError
from unisono.files import WRONG_KINDS
from unisono.storage.journal import HINTS, hint_of

KEPT = "what was finished is kept, and the same command goes on"


@final
class DiskRefused(UserError):
    """The disk of the study did not take something, or what is in the way is no regular file."""


@contextmanager
def writing(path: Path, after: str = KEPT) -> Iterator[None]:
    """Within it, an error of the disk is a `DiskRefused`. path: what is written, if the error does not say it."""
    try:
        yield
    except OSError as error:
        if error.errno not in HINTS and error.errno not in WRONG_KINDS:
            raise  # of something else: a process, a pipe
        raise _refusal(f"{error.filename or path} cannot be written: {error.strerror}", error, after) from None


def end_if_refused(record: Mapping[str, Any], run: Path) -> None:
    """A `UserError` if a run failed because the disk did not take what it wrote to its directory."""
    for number in HINTS:
        for line in record.get("error", "").splitlines():
            if os.strerror(number) in line and run.name in line:
                raise _refusal(line.removeprefix("unisono: "), OSError(number, ""), KEPT)


def _refusal(what: str, error: OSError, after: str) -> DiskRefused:
    kept = after and error.errno != errno.ENOENT  # what was removed was not kept
    return DiskRefused(what, hint=f"{hint_of(error)}; {after}" if kept else hint_of(error))
