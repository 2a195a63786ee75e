"""`unisono report`: runs as one web page that opens anywhere, also years later and without a network.

unisono report runs/mine; unisono report runs/a runs/b --out compared.html
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unisono.errors import UserError
from unisono.files import check_entry, expand_user, open_file, write_file
from unisono.terminal import print, printable


def report(
    run: str,
    /,
    *runs: str,
    out: Annotated[
        str, Parameter(help="The file. [default: report.html in the run, or here for several]", show_default=False)
    ] = "",
) -> None:
    """Show runs as a web page: one file that holds everything and loads nothing.

    The verdict comes first; then curves, what each rank did and contributed, what happened, and how to run it again.
    Of several runs the curves lie over each other, and a table shows in what they differ. A run may still be going on;
    what is damaged or missing is named on the page. An older report is replaced, any other file is not.

    Parameters
    ----------
    run
        A run directory of unisono train, or what scale, compare, predict, tune, bench --out or profile --out left.
    runs
        More of them.
    """
    from unisono.report.page.document import document
    from unisono.report.run import load
    from unisono.train.entries import REPORT

    found = [load(path) for path in (run, *runs)]
    target = expand_user(out) if out else (Path(REPORT) if runs else found[0].path / REPORT)
    check(target, given=bool(out))
    write(target, document(found))
    for one in found:
        for problem in one.problems:
            print(printable(f"{one.path}: {problem}"))
    print(f"Written: {printable(str(target))}, {target.stat().st_size / 1e3:,.0f} kB; open it in a browser")


def check(target: Path, *, given: bool) -> None:
    """Refuses to replace anything but a report, before work is done."""
    from unisono.report.page.document import MARKER

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
