"""report.html: runs as a web page, written to a file that is a report already or does not exist yet.

write_report(Path("report.html"), [unisono.load("runs/mine")], given=False)
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unisono.errors import UserError
from unisono.files import check_entry, open_file, write_file
from unisono.report.html.document import MARKER, document
from unisono.report.run.load import Run


def write_report(target: Path, runs: Sequence[Run], *, given: bool) -> None:
    """Writes the page. given: the user chose the name."""
    check(target, given=given)
    write(target, document(runs))


def check(target: Path, *, given: bool) -> None:
    """Refuses to replace anything but a report, before work is done."""
    if os.path.isdir(target):  # False for a name that no file system takes
        raise UserError(f"--out {target} is a directory", hint="give the name of a file, such as report.html")
    named, hint = f"{'--out ' if given else ''}{target}", "give another name with --out, or remove it"
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            check_entry(target, "file")
        except NotADirectoryError:
            raise
        except OSError as error:
            raise UserError(f"{named} {error.strerror}", hint=hint) from None
        with open_file(target, follow_links=False) as file:
            first = file.read(200)
        if first and MARKER.encode() not in first:
            raise UserError(f"{named} exists and is no report of unisono's", hint=hint)


def write(target: Path, page: str) -> None:
    """The whole file or none."""
    try:
        write_file(target, page, durable=False)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written: {error.strerror}", hint="give a place that you may write to with --out"
        ) from None
