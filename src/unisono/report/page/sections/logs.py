"""Logs: the last lines of what ranks wrote, and the error that ended a run."""

from collections.abc import Sequence
from pathlib import Path

from unisono.report.page.blocks import Block, Code, Fold, Section
from unisono.report.run import Run

MOST_FILES, MOST_LINES, MOST_BYTES = 16, 40, 8192


def section(runs: Sequence[Run]) -> Section | None:
    """Folded: most readers do not need them."""
    blocks: list[Block] = []
    for run in runs:
        whose = f"{run.name}: " if len(runs) > 1 else ""
        if error := run.summary.get("error"):
            blocks.append(Fold(f"{whose}the error that ended the run", [Code(str(error)[-MOST_BYTES:])]))
        for path in _files(run.path / "log"):
            if text := tail(path):
                blocks.append(Fold(f"{whose}{path.name}", [Code(text)]))
    return Section("Logs", blocks) if blocks else None


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())[:MOST_FILES]
    except OSError:
        return []


def tail(path: Path) -> str:
    """The last lines, of a file that may be large."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MOST_BYTES))
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "\n".join(text.splitlines()[-MOST_LINES:])
