"""Draws docs/images/terminal.svg: the terminal of two real runs, one of which loses a rank.

    .venv/bin/python scripts/terminal_picture.py docs/images/terminal.svg

The runs are real: the script starts them, kills rank 2 of the second one, and shows some of the lines that they print.
It fails if the hashes of the weights differ.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

QUIET = "train r5 --ranks 1 --epochs 400 --out quiet"
KILLED = "train r5 --ranks 4 --epochs 400 --out killed"
LIMIT_S = 120
WIDTH, LINE, TOP, LEFT = 980, 22, 56, 22
COLOURS = {"$": "#7ee787", "#": "#8b949e", "rank": "#ffa657", "weights": "#79c0ff"}
"""First word of a line -> its colour."""


def train(arguments: str, folder: Path, kill: bool = False) -> list[str]:
    """The lines that the command prints; with `kill`, rank 2 gets SIGKILL after a second and a half."""
    command = [sys.executable, "-m", "unisono", *arguments.split()]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        if kill:
            time.sleep(1.5)
            found = subprocess.run(["pgrep", "-P", str(run.pid), "unisono-rank2"], check=True, capture_output=True)
            os.kill(int(found.stdout), signal.SIGKILL)
        output, _ = run.communicate(timeout=LIMIT_S)
    if run.returncode:
        raise SystemExit(output)
    return output.splitlines()


def story(folder: Path) -> list[str]:
    """The lines of the picture."""
    quiet, killed = train(QUIET, folder), train(KILLED, folder, kill=True)
    if quiet[-1].split()[1] != killed[-1].split()[1]:
        raise SystemExit(f"the weights differ: {quiet[-1]} and {killed[-1]}")
    change = [line for line in killed if line.startswith("rank 2 ")]
    before = killed[killed.index(change[0]) - 1]
    return [
        f"$ unisono {QUIET}", *quiet[:2], "...", quiet[-1], "",
        f"$ unisono {KILLED}", "...", before, "# in another terminal: kill -9 $(pgrep unisono-rank2)", *change, "...",
        killed[-1], "# the same weights, bit for bit",
    ]  # fmt: skip


def draw(lines: list[str]) -> str:
    """The lines as an SVG image of a terminal. It loads no font."""
    height = TOP + LINE * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Two runs on a terminal: a rank is killed in the second one, and the weights are the same</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#0d1117"/>',
    ]
    parts += [f'<circle cx="{LEFT + 20 * i}" cy="20" r="6" fill="#484f58"/>' for i in range(3)]
    parts.append('<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">')
    for number, line in enumerate(lines):
        words = line.split()
        colour = COLOURS.get(words[0], "#c9d1d9") if words else "#c9d1d9"
        parts.append(f'<text x="{LEFT}" y="{TOP + LINE * number}" fill="{colour}">{escape(line)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        Path(sys.argv[1]).write_text(draw(story(Path(made))))
