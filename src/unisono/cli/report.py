"""`unisono report`: runs as one web page that opens anywhere, also years later and without a network.

unisono report runs/mine; unisono report runs/a runs/b --out compared.html
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unisono.files import expand_user
from unisono.safe_print import print, printable


def report(
    run: str,
    /,
    *runs: str,
    out: Annotated[
        str,
        Parameter(
            help="The file to write. [default: report.html in the run, or here for several runs]", show_default=False
        ),
    ] = "",
) -> None:
    """Show runs as a web page: one file that holds everything and loads nothing.

    The verdict comes first; then curves, what each rank did and contributed, what happened, and how to run it again.
    The curves of several runs share charts, and a table shows how the runs differ. A run may still be active. The page
    names damaged and missing files. An older report is replaced, any other file is not.

    Parameters
    ----------
    run
        A run directory of unisono train, or a directory of scale, compare, predict, tune, bench --out, profile --out.
    runs
        More runs.
    """
    from unisono.report.html.document import write_report
    from unisono.report.run.load import load
    from unisono.storage.run_files import REPORT

    found = [load(path) for path in (run, *runs)]
    target = expand_user(out) if out else (Path(REPORT) if runs else found[0].path / REPORT)
    write_report(target, found, given=bool(out))
    for one in found:
        for problem in one.problems:
            print(printable(f"{one.path}: {problem}"))
    print(f"Written: {printable(str(target))}, {target.stat().st_size / 1e3:,.0f} kB; open it in a browser")
