"""The entries of a run directory: the files and folders that a run writes, and a check that they are nothing else.

The one idea: a run directory may come from somebody else. A link, a pipe or a device in it is refused by name before
anything is trained or written, so nothing outside is changed and nothing waits.

    check_run_directory(Path("runs/mine"))

Limits: what is put there after the check is refused by `files.py` when its turn comes, which may be at the end.
"""

import os
from contextlib import suppress
from pathlib import Path

from unisono.errors import UserError
from unisono.files import WRONG_KINDS, check_entry
from unisono.storage.run_tables import TABLES
from unisono.terminal import shell_word

LOCK = ".lock"
REPORT = "report.html"
"""Made by `unisono report`, which does not ask for the lock."""
LIVE_PAGE = "live_page.txt"
"""The address of a live page, with its token, while `report/live` serves one to a batch job."""
FILES = {
    "recipe.toml", "summary.json", "weights.safetensors", "energy.json", "loss.png", REPORT, LIVE_PAGE, *TABLES,
    LOCK, "events.jsonl", "utilisation.csv",
}  # fmt: skip
FOLDERS = {"snapshots", "tensorboard", "log"}


def resume_command(run: Path) -> str:
    """What to type to go on with a run."""
    return f"unisono train --resume {shell_word(str(run))}"


def check_run_directory(path: Path) -> None:
    """A `UserError` that names an entry which is a link, a pipe or a device, or a directory in place of a file."""
    if path.exists() and not path.is_dir():
        inside = path.name in FILES
        raise UserError(
            f"{path} is a file, not the directory of a run",
            hint=f"give the run directory: {shell_word(str(path.parent))}" if inside else "give that of a run",
        )
    try:
        _check_all(path)
    except OSError as error:
        if error.errno not in WRONG_KINDS:
            return  # it cannot be looked at: whoever uses it will say so
        raise UserError(
            f"{error.filename} {error.strerror}: a run writes to regular files of its own directory, and nowhere else",
            hint="nothing was changed; remove it, or put a copy of what it leads to in its place",
        ) from None


def _check_all(path: Path) -> None:
    for name in _names(path):
        kind = "folder" if name in FOLDERS else "file" if name in FILES else ""
        check_entry(path / name, kind)
    for name in _names(path / "log"):
        check_entry(path / "log" / name, "file" if name.endswith(".stack") else "", within=path)
    # Of snapshots, those that are no directories are passed over; those of TensorBoard get new names.
    check_entry(path / "snapshots" / LOCK, "file", within=path)


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(folder))
    return []
