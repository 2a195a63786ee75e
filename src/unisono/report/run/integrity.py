"""Integrity: damage in files of a run that no page shows, or that lack whole lines.

    problems: list[str] = []
    look_for_damage(Path("runs/mine"), summary, {"metrics.jsonl": metrics.get("epoch")}, problems)

The one idea: a table of a run ends with a newline, and once the run is over with its last epoch; so a look at its last
lines tells whether it was cut, however long it is. A run that goes on, or was killed, may be at any line.

Tables that pages show are read whole anyway: epochs that they lack in the middle are told.

Limits: what is missing or altered in the middle of the others is not seen, nor the end of one whose last line is longer
than 1 MiB.
"""

import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unisono.files import open_file
from unisono.report.run.files import read_json
from unisono.storage.run_files import epoch_of

TAIL_BYTES = 1 << 20
_MOST_GAPS = 3
_NOT_SHOWN = ("sync_time.csv", "contributions.csv", "pushes.csv")


def look_for_damage(
    path: Path, summary: Mapping[str, Any], shown: Mapping[str, np.ndarray | None], problems: list[str]
) -> None:
    """Adds a sentence for each file of the run directory that is damaged and was not named before.

    shown: of the tables that were read, the epochs of their lines; None: there are none."""
    read_json(path / "energy.json", problems)
    known = _epochs_of(summary)
    for name, epochs in shown.items():
        named = any(told.startswith(name) for told in problems)
        if not named and (path / name).exists():
            if gaps := _gaps_in(epochs):
                problems.append(f"{name} lacks {gaps}")
            if known:
                _tell_missing(name, _last(epochs), known, problems)
    for name in _NOT_SHOWN:
        tail = _tail(path / name, problems)
        if tail and not tail.endswith(b"\n"):
            problems.append(f"{name}: the last line is cut short")
        elif known and tail is not None:
            lines = tail.splitlines()
            if len(lines) > 1 or len(tail) < TAIL_BYTES:  # else it is not known where the last one begins
                _tell_missing(name, epoch_of(lines[-1].decode(errors="replace")) if lines else None, known, problems)
    if known and _tail(path / "utilisation.csv", []) == b"":
        problems.append("utilisation.csv is empty")


def _epochs_of(summary: Mapping[str, Any]) -> int:
    """Of a run that is over; 0: not known."""
    told = summary.get("epochs") if summary.get("status") == "finished" else 0
    return told if type(told) is int and told > 0 else 0


def _last(epochs: np.ndarray | None) -> float | None:
    return None if epochs is None or not len(epochs) or epochs.dtype == object else float(epochs.max())


def _gaps_in(epochs: np.ndarray | None) -> str:
    """The epochs that are missing before the last of a table, in words; empty if none are."""
    if epochs is None or not len(epochs) or epochs.dtype == object:
        return ""
    found = np.unique(epochs[np.isfinite(epochs)]).tolist()
    gaps = [(int(before) + 1, int(after) - 1) for before, after in pairwise([0, *found]) if after - before > 1]
    told = [f"{first}" if first == last else f"{first}-{last}" for first, last in gaps]
    if len(told) > _MOST_GAPS:
        told = [*told[:_MOST_GAPS], "others"]
    single = len(gaps) == 1 and gaps[0][0] == gaps[0][1]
    return f"{'epoch' if single else 'epochs'} {', '.join(told)}" if told else ""


def _tell_missing(name: str, last: float | None, epochs: int, problems: list[str]) -> None:
    if last is None:
        problems.append(f"{name} is cut short: it has no epoch, and the run had {epochs}")
    elif last < epochs:
        problems.append(f"{name} is cut short: it ends with epoch {last:g}, and the run had {epochs}")


def _tail(path: Path, problems: list[str]) -> bytes | None:
    """The end of a file; None if it is not there or cannot be read."""
    try:
        with open_file(path, follow_links=False) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"{path.name}: {error.strerror}")
        return None
