"""Screen: lines that stay, and on a terminal a progress bar below them that does not.

    with Screen(epochs=20) as screen:
        screen.progress(Progress(epoch=3, step=12, steps=23, samples_per_s=1e5)); screen.say("epoch 3/20 ...")

The one idea: the bar is the last line, drawn when news comes and taken away before anything else is written, so every
line stands whole in the scroll-back and nothing is left of the bar at the end, whatever ended it. No thread: nobody
draws when there is no news. Not a terminal: no bar.

A line that cannot be written (its file is on a full disk, its reader has gone away, as `| head` does) is given up:
training goes on. Limits: the time left takes all epochs for equally long; what ranks themselves
print while the bar is shown lands in its line.
"""

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self, TextIO, final

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unisono.messages.rank_reports import Progress
from unisono.report.terminal.console import Console
from unisono.safe_print import print

PAUSE_S = 0.1
"""Between two drawings of the bar: no reader is faster."""


@final
class Screen:
    """Standard output of the one process that speaks."""

    def __init__(self, epochs: int, stream: TextIO | None = None, *, bar: bool = True, quiet: bool = False) -> None:
        """bar: False where a launcher gives its ranks a terminal and writes what they say to a file. quiet: only
        warnings are shown."""
        self._epochs, self._quiet = epochs, quiet
        self._stream = stream or sys.stdout or io.StringIO()  # standard output may have come to us closed
        self._live: Live | None = None
        self._drawn = -PAUSE_S
        self._first: tuple[int, float] | None = None
        # Asked here, not by rich, for which variables of the environment make a terminal of any file.
        console = Console(file=self._stream, force_terminal=self._stream.isatty())
        self._console = console if bar and not quiet and console.is_terminal and not console.is_dumb_terminal else None

    def say(self, text: str) -> None:
        """Lines that stay."""
        if not self._quiet:
            self._write(text, self._stream)

    def warn(self, text: str) -> None:
        """Lines that stay, on standard error: they are not part of what was asked for."""
        self._write(text, sys.stderr)

    def progress(self, news: Progress) -> None:
        """How far the training is: epoch and step (both from 1) of so many steps, and samples_per_s."""
        now = time.monotonic()
        steps = max(1, news.steps)
        done = (news.epoch - 1) * steps + news.step
        if self._first is None:
            self._first = done, now
        if self._console is None or now - self._drawn < PAUSE_S:
            return
        self._drawn = now
        since, begun = self._first
        left = self._epochs * steps - done
        left_s = (now - begun) / (done - since) * left if done > since else None
        bar = _bar(news, self._epochs, done / (self._epochs * steps), left_s)
        with _forgiven():
            if self._live is None:
                self._live = Live(
                    console=self._console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()
                self._console.show_cursor(True)  # rich hides it, and a killed command could not bring it back
            self._live.update(bar, refresh=True)

    def close(self) -> None:
        """Takes the bar away. Lines may still be said."""
        live, self._live = self._live, None
        if live is not None:
            with _forgiven():
                live.stop()

    def _write(self, text: str, stream: TextIO) -> None:
        self.close()
        with _forgiven():
            print(text, file=stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _forgiven() -> Iterator[None]:
    """A line that cannot be written (a full disk, a closed pipe) does not stop the training."""
    with suppress(OSError):
        yield


def _bar(news: Progress, epochs: int, share: float, left_s: float | None) -> Table:
    """One line: epoch 3/20 ━━━━━━━━ step 12/23  129,389 samples/s  0:05 left."""
    texts = [f"epoch {news.epoch}/{epochs}", f"step {news.step}/{news.steps}"]
    texts.append(f"{news.samples_per_s:,.0f} samples/s")
    if left_s is not None:
        minutes, seconds = divmod(round(left_s), 60)
        hours, minutes = divmod(minutes, 60)
        texts.append(f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left")
    first, *rest = (Text(text, no_wrap=True, overflow="crop") for text in texts)
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(first, ProgressBar(total=1.0, completed=min(1.0, share), width=20), *rest)
    return line
