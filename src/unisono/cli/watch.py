"""`unisono watch`: runs as a page that follows them, in the browser or on the terminal.

    unisono watch runs/mine; unisono watch runs/mine --terminal

Reads files only, so the run may be one on another machine whose directory is on a shared file system.
"""

import os
import platform
import shlex
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unisono.errors import UserError
from unisono.runs.live_page import may_show_token
from unisono.safe_print import print

POLITE = 10
"""How much this process steps back (see nice(2)): a run on the same cores comes first."""
PAUSE_S = 1.0


def watch(
    run: str,
    /,
    *runs: str,
    terminal: Annotated[
        bool, Parameter(help="Show the run on this terminal instead of in a browser.", negative="")
    ] = False,
    port: Annotated[int, Parameter(help="The port on this machine; 0: a free one.")] = 0,
    open_: Annotated[bool, Parameter(name="--open", help="Open a browser, if this machine has a desktop.")] = True,
    until_end: Annotated[bool, Parameter(help="End when the runs have ended.", negative="")] = False,
    print_token: Annotated[
        bool, Parameter(help="Print the token even if the output is not a terminal.", negative="")
    ] = False,
) -> None:
    """Show runs as a live page: the page of `unisono report`, updated as they continue. Ctrl-C ends it.

    The page is served on this machine only, and its address contains a secret token. A terminal shows the address. The
    output of a batch job, which others may read, names a file that only you can read. From another machine: ssh -L
    PORT:127.0.0.1:PORT HOST, and open the same address there. The page also shows runs that have ended. It only reads
    files, so it does not slow an active run down.

    Parameters
    ----------
    run
        A run directory of unisono train.
    runs
        More runs: their curves share charts.
    """
    from unisono.report.run.load import load

    paths = [load(path).path for path in (run, *runs)]  # says what is wrong with them before anything is opened
    with suppress(KeyboardInterrupt):
        if terminal:
            _on_terminal(paths)
        else:
            _in_browser(paths, port, until_end=until_end, show=open_, print_token=print_token or may_show_token())


def _in_browser(paths: list[Path], port: int, *, until_end: bool, show: bool, print_token: bool) -> None:
    from unisono.environment.os_environ import has_desktop
    from unisono.report.live.address import open_in_browser
    from unisono.report.live.page_server import LiveServer

    with LiveServer(paths, port) as server, ExitStack() as stack:
        _end_in_order()
        if print_token:
            print(f"Live page, on this machine: {server.address}", flush=True)
        else:
            whole = _keep(stack, server.address, paths[0])
            where = f"Live page, on {platform.node()}: {server.origin}"
            print(f"{where} (with a token; the whole address is in {whole})", flush=True)
        os.nice(POLITE)  # not before: the process that started this one waits for the address
        with open_in_browser(server.address, desktop=show and has_desktop()):
            server.serve(until_end=until_end)


def _keep(stack: ExitStack, address: str, run: Path) -> str:
    """The name, in one line, of the file that holds the address until the stack is left."""
    from unisono.report.html.markup import plain
    from unisono.report.live.address import address_file

    try:
        path = stack.enter_context(address_file(address, run))
    except OSError as error:
        hint = "make room, or use --print-token: whoever may read the output can then open the page"
        raise UserError(f"the live page's address cannot be kept in a file: {error.strerror}", hint=hint) from None
    return plain(path.absolute()).replace("\n", "\N{SYMBOL FOR NEWLINE}")


def _end_in_order() -> None:
    """Asked to end, by Ctrl-C or by the end of the run that started us: what was opened is closed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _on_terminal(paths: list[Path]) -> None:
    """Until the run has ended; not on a terminal: once."""
    from rich.live import Live

    from unisono.report.live.follower import SHARE, age_s, current
    from unisono.report.terminal.console import Console
    from unisono.report.terminal.dashboard import dashboard

    if len(paths) > 1:
        raise UserError(f"--terminal with {len(paths)} runs", hint="give one run, or leave --terminal out")
    console, run = Console(highlight=False), current(paths[0])
    if not run.trained:
        what = f"a study ({', '.join(run.studies)})" if run.studies else "a study"
        hint = f"leave --terminal out for its page in a browser, or: unisono report {shlex.quote(str(paths[0]))}"
        raise UserError(f"--terminal shows a run of unisono train; {paths[0]} is {what}", hint=hint)
    if console.is_terminal and not run.summary:
        _end_in_order()
        os.nice(POLITE)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not run.summary:
                begun = time.monotonic()
                run = current(paths[0])
                live.update(dashboard(run, age_s(paths)), refresh=True)
                time.sleep(max(PAUSE_S, SHARE * (time.monotonic() - begun)))
    console.print(dashboard(run, age_s(paths)))  # stays when the screen is given back
