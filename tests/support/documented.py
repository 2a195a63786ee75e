"""The commands that README and docs/ show, and what they need to be run: used by `test_docs.py` and `test_commands.py`.

The one idea: what stands in a block of ```sh is meant to be typed. A block that cannot be run here (a GPU, the network,
a run that has to be stopped by hand) has a comment in the line above it, which says why; it is only parsed:

    <!-- parsed only: needs GPUs -->

Commands of a page run one after the other in one directory, in which what the page speaks of is there (`prepare`).
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from support.paths import ROOT
from unisono.supervise.children import die_with_parent

PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
MNIST = next(
    (path for path in (ROOT / "../shared/data/mnist", Path.home() / ".cache/unisono/mnist") if path.exists()), None
)
SLOW = ("mnist", "gpt:", "cnn:", "r2", "r4", "net.py:make")
"""Trainings that take long as they stand: one epoch of them is enough to see that the command works."""
LIMIT_S = 300
_BLOCK = re.compile(r"(?:<!-- parsed only: (?P<why>[^>]+) -->\n)?```sh\n(?P<text>.*?)```", re.DOTALL)


@final
@dataclass(frozen=True)
class Command:
    """A line of a block. why_not: why it is only parsed; empty if it can be run."""

    text: str
    why_not: str = ""

    @property
    def words(self) -> list[str]:
        """As a shell would split it, without the comment."""
        return shlex.split(self.text, comments=True)

    @property
    def of_unisono(self) -> list[str]:
        """The arguments of `unisono`, whatever starts it; none if it is another command."""
        words = [Path(word).name for word in self.words]
        return self.words[words.index("unisono") + 1 :] if "unisono" in words[:9] else []


def commands(page: Path) -> list[Command]:
    """In their order."""
    return [
        Command(line.strip(), block["why"] or "")
        for block in _BLOCK.finditer(page.read_text())
        for line in block["text"].replace("\\\n", "").splitlines()
        if line.strip()
    ]


def unisono(*arguments: str, folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "unisono", *arguments], cwd=folder, check=True, capture_output=True, timeout=LIMIT_S
    )


def prepare(folder: Path, text: str) -> None:
    """What the commands of a page speak of, as far as the page does not make it itself."""
    for page, name in (("start.md", "net.py"), ("own-data.md", "rows.py")):
        found = re.search(rf"```python title=\"{name}\"\n(.*?)```", PAGES[page].read_text(), re.DOTALL)
        (folder / name).write_text(found[1])
    if "rows.py" in text:
        rows = [f"{row % 7},{row % 5},{row % 3}" for row in range(300)]
        (folder / "measurements.csv").write_text("\n".join(["width,height,class", *rows, ""]))
    if "runs/" in text:
        unisono("train", "--epochs", "2", "--out", "runs/mine", folder=folder)
        for name in ("one", "other", "a", "b"):
            shutil.copytree(folder / "runs" / "mine", folder / "runs" / name)
    if "report results" in text:
        unisono(
            "bench", "--transports", "shm", "--elements", "100", "--seconds", "0.001", "--out", "results", folder=folder
        )
    if "report studies/mine" in text:
        unisono("predict", "--samples-per-s", "1000", "--nodes", "2", "--out", "studies/mine", folder=folder)
    if "report looked" in text and "profile r4" not in text:
        unisono("profile", "--batches", "2", "--out", "looked", folder=folder)
    if "my-directory" in text:
        (folder / "my-directory").mkdir()
        for name, value in (("train_x", np.eye(4)), ("train_y", np.arange(4) % 2)):
            np.save(folder / "my-directory" / f"{name}.npy", value)
    if MNIST is not None:
        (folder / "path" / "to").mkdir(parents=True)
        (folder / "path" / "to" / "mnist").symlink_to(MNIST.resolve())


def environment() -> dict[str, str]:
    """As the README says: mpirun as root, with more ranks than cores."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


def shortened(command: Command) -> str:
    """The command; of one epoch, or with less time for each measurement, if it would take long."""
    words = command.of_unisono
    long = words[:1] == ["train"] and any(word.startswith(SLOW) for word in words)
    text = shlex.join(command.words) if "$" not in command.text else command.text
    if words[:1] == ["bench"] and "--seconds" not in words:
        return f"{text} --seconds 0.01"
    return f"{text} --epochs 1" if long and "--epochs" not in words else text


def run(command: Command, folder: Path) -> None:
    """Runs it; an AssertionError with its output if it fails. A page that is served is stopped as by Ctrl-C."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {shortened(command)}"], cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
        preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
    ) as started:  # fmt: skip
        told = ""
        try:
            if command.of_unisono[:1] == ["watch"] and "--terminal" not in command.words:
                told = started.stdout.readline()
                assert "Live page" in told
                started.send_signal(signal.SIGINT)
            told += started.communicate(timeout=LIMIT_S)[0]
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode == 0, f"{command.text} ended with {started.returncode}:\n{told}"
