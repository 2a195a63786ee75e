"""`unisono report`: runs as one web page that opens anywhere, also years later and without a network.

unisono report runs/mine; unisono report runs/a runs/b --out compared.html
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unisono.files import expand_user
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
    from unisono.report.html.report_file import write_report
    from unisono.report.run.load import load
    from unisono.storage.run_files import REPORT

    found = [load(path) for path in (run, *runs)]
    target = expand_user(out) if out else (Path(REPORT) if runs else found[0].path / REPORT)
    write_report(target, found, given=bool(out))
    for one in found:
        for problem in one.problems:
            print(printable(f"{one.path}: {problem}"))
    print(f"Written: {printable(str(target))}, {target.stat().st_size / 1e3:,.0f} kB; open it in a browser")
