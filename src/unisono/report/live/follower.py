"""Following runs: their page as it is now, read again when their files have changed. Nothing is asked of ranks.

    view = Follower([Path("runs/mine")]).look(); view.html, view.ended, view.age_s

The one idea: looking must not cost the run anything. Files are read when their sizes or times say that there is news,
and after a reading there is a pause of ten times as long as it took, however many readers ask meanwhile. A run that has
ended has nothing to lose: its last words are read at once.

Limits: what is written twice within the clock of a file system, in the same length, is seen with the next change.
`age_s` compares this machine's clock with that of the file system.
"""

import os
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import final

from unisono.errors import UserError
from unisono.files import open_folder
from unisono.report.html.blocks import Section, Text
from unisono.report.html.document import content, document
from unisono.report.html.markup import html_of
from unisono.report.run.load import STUDIES, TRAINING, Run, load
from unisono.storage.run_files import LIVE_PAGE

PAUSE_S = 0.5
SHARE = 10
"""Reading and drawing take at most about a tenth of one core."""
FRESH_S = 30.0
"""A run writes about every two seconds what its ranks do: one that wrote within this time goes on."""
MOST_FILES = 10_000
"""Of a directory; a stranger's may have millions, and it is listed every second."""
_AWAITED = ("summary.json is missing", "metrics.jsonl is missing", "ranks.csv is missing")


@final
@dataclass(frozen=True)
class PageView:
    """What there was to be seen at one moment."""

    version: str
    """Of the contents: others are other contents."""
    html: str
    ended: bool
    """All runs have."""
    age_s: float
    """Since something was written."""
    fresh: bool = True
    """Of what is in the files now, not of a moment ago."""


@final
class Follower:
    """Of one or several run directories, for any number of threads."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._lock = threading.Lock()
        self._seen: object = None  # what files are there, and which runs go on
        self._html = ""
        self._not_before = 0.0
        self._page = ""
        self._page_seen: object = None
        self._page_not_before = 0.0

    def look(self) -> PageView:
        """The newest contents, or those of a moment ago."""
        with self._lock:
            over = ended(self._paths)  # before the files are listed: what is said to be over is all there
            seen = _state(self._paths)
            begun = time.monotonic()
            if seen != self._seen and (over or begun >= self._not_before):
                self._html, self._seen = _content(self._paths), seen
                self._not_before = begun + max(PAUSE_S, SHARE * (time.monotonic() - begun))
            version = sha256(self._html.encode()).hexdigest()[:16]
            return PageView(version, self._html, over, age_s(self._paths), fresh=seen == self._seen)

    def page(self) -> str:
        """The whole page, of now or of a moment ago; what has changed since then it will ask for. A `UserError` if a
        run was moved or removed before there was one."""
        with self._lock:
            seen, begun = _state(self._paths), time.monotonic()
            if not self._page or (seen != self._page_seen and begun >= self._page_not_before):
                self._page = document([current(path) for path in self._paths], live=True)
                self._page_seen = seen
                self._page_not_before = begun + max(PAUSE_S, SHARE * (time.monotonic() - begun))
            return self._page


def current(path: Path) -> Run:
    """A run as it is now. What one that goes on has not written yet is no problem of its directory's."""
    run = load(path)
    if run.summary or not run.recipe:
        return run
    problems = [told for told in run.problems if not told.startswith(_AWAITED)]
    return replace(run, problems=problems, going_on=_fresh(path))


def ended(paths: Sequence[Path]) -> bool:
    """Whether all runs have written how they ended. One that was killed has not. Of a study, what it can show."""
    return all(any(_is_file(path / name) for name in _last(path)) for path in paths)


def _last(path: Path) -> list[str]:
    """The files of which one says that nothing more is waited for. A run's directory may hold a study of it, too."""
    trained = any(_is_file(path / name) for name in TRAINING)
    return ["summary.json"] if trained else [f"{study}.json" for study in STUDIES]


def age_s(paths: Sequence[Path]) -> float:
    """Seconds since something was written."""
    newest = max((changed for *_, changed in _files(paths)), default=0)
    return max(0.0, time.time() - newest / 1e9)


def _content(paths: Sequence[Path]) -> str:
    try:
        return content([current(path) for path in paths])
    except UserError as error:  # moved or removed meanwhile
        return html_of(Section("What could not be read", [Text(str(error), "warning")]))


def _fresh(path: Path) -> bool:
    return age_s([path]) < FRESH_S


def _state(paths: Sequence[Path]) -> tuple[object, ...]:
    """What a page depends on: others are other pages."""
    return _files(paths), *(_fresh(path) for path in paths)


def _files(paths: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """(path, size, when it was changed) of what a page is made of: regular files of the directory's own."""
    found = []
    for path in paths:
        for folder in (path, path / "log"):
            with suppress(OSError), open_folder(folder, within=path) as fd, os.scandir(fd) as entries:
                for entry in islice(entries, MOST_FILES):
                    with suppress(OSError):  # gone between the two calls
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and not entry.name.startswith(("report.html", LIVE_PAGE)):
                            found.append((str(folder / entry.name), status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def _is_file(path: Path) -> bool:
    """A link is none: it is not read, either."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
