"""The directories of one input of `fuzz.py`, and what is compared before and after it: files outside, temporary files,
shared memory, marks of code that ran, secrets that were copied.

    sandbox = Sandbox(root, template).make(); before = sandbox.surroundings(); ...; changes(before, sandbox)
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECRET = "5ecre7-0f-4n07her-u5er"
"""The contents of files outside, which must not turn up in anything that is written or printed."""
MARK = "EXECUTED"
"""The name of a file that code makes if it is executed."""


class Finding(NamedTuple):
    """What went wrong: `line` tells it in one line."""

    heading: str
    line: str


class Sandbox(NamedTuple):
    """The directories of one input; `template` holds what all inputs copy from."""

    root: Path
    template: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def outside(self) -> Path:
        """What no input may change: links lead there."""
        return self.root / "outside"

    def make(self) -> "Sandbox":
        for name in ("work", "home", "tmp", "outside", "bin"):
            (self.root / name).mkdir(parents=True)
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")
        (self.outside / "secret.json").write_text(f'{{"format": "{SECRET}", "order": "{SECRET}"}}\n')
        (self.outside / "plain.txt").write_text("7\n")  # for hard links: whoever has one has the contents
        (self.outside / "folder").mkdir()
        return self

    def surroundings(self) -> dict[str, object]:
        """Everything but the working directory, caches, settings and standard output."""
        found: dict[str, object] = {}
        for top in ("home", "tmp", "outside"):
            for path in sorted((self.root / top).rglob("*")):
                if not {".cache", ".config"} & {*path.parts}:
                    facts = path.lstat()
                    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
                    found[str(path.relative_to(self.root))] = (facts.st_mode, facts.st_mtime_ns, content)
        return found | {name: 0 for name in os.listdir(self.root) if name not in ("stdout", "stderr", MARK)}


OF_NEIGHBOURS = ("sm_segment.", "vader_segment.", "unisono-kept-")
"""What inputs do not make, but tests beside this one may: Open MPI's memory, snapshots of runs whose disk is full."""


def left_shared(before: set[str]) -> list[str]:
    """Files of /dev/shm that were made meanwhile and that no living process has mapped."""
    made = {name for name in os.listdir("/dev/shm") if not name.startswith(OF_NEIGHBOURS)} - before
    if not made:
        return []
    mapped = "".join(text_of(path) for path in Path("/proc").glob("[0-9]*/maps"))
    return sorted(name for name in made if f"/dev/shm/{name}" not in mapped and Path("/dev/shm", name).exists())


def changes(before: dict[str, object], sandbox: Sandbox) -> Iterator[Finding]:
    after = sandbox.surroundings()
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            what = "made" if name not in before else "removed" if name not in after else "changed"
            heading = "left behind" if name.startswith("tmp/") else "changed outside"
            yield Finding(heading, f"{name} was {what}")


def leaks(sandbox: Sandbox, printed: str) -> Iterator[str]:
    if SECRET in printed:
        yield "its output"
    for folder, _, names in os.walk(sandbox.work):
        for path in (Path(folder, name) for name in names):
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and SECRET.encode() in path.read_bytes():
                yield path.name


def text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
