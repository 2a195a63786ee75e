"""`unisono report`: runs as one web page that opens anywhere, also years later and without a network.

unisono report runs/mine; unisono report runs/a runs/b --out compared.html
"""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unisono.errors import UserError
from unisono.terminal import print, printable

NAME = "report.html"


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

    found = [load(path) for path in (run, *runs)]
    target = Path(out).expanduser() if out else (Path(NAME) if runs else found[0].path / NAME)
    check(target, given=bool(out))
    write(target, document(found))
    for one in found:
        for problem in one.problems:
            print(printable(f"{one.path}: {problem}"))
    print(f"Written: {printable(str(target))}, {target.stat().st_size / 1e3:,.0f} kB; open it in a browser")


def check(target: Path, *, given: bool) -> None:
    """Refuses to replace anything but a report, before work is done."""
    from unisono.report.page.document import MARKER

    if target.is_dir():
        raise UserError(f"--out {target} is a directory", hint="give the name of a file, such as report.html")
    with suppress(FileNotFoundError, NotADirectoryError):
        strange = not stat.S_ISREG(os.stat(target).st_mode)  # a pipe would keep us waiting, a device would be replaced
        first = b"" if strange else _first(target)
        if strange or (first and MARKER.encode() not in first):
            raise UserError(
                f"{'--out ' if given else ''}{target} exists and is no report of unisono's",
                hint="give another name with --out, or remove it",
            )


def _first(target: Path) -> bytes:
    with open(target, "rb") as file:
        return file.read(200)


def write(target: Path, page: str) -> None:
    """The whole file or none."""
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(page)
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise UserError(
            f"{target} cannot be written: {error.strerror}", hint="give a place that you may write to with --out"
        ) from None


def _umask() -> int:
    """It can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
