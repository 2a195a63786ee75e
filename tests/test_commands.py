"""The commands of README and docs/ are executed. Of the pages for beginners always, of all others by

    python -m pytest -m documented tests/test_commands.py              # some minutes

MNIST is looked for in ../shared/data/mnist, seen from the repository, and in ~/.cache/unisono; commands that need it,
or a package or program that is not installed, are passed over and named.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.documented import MNIST, PAGES, commands, prepare, run

ALWAYS = ("start.md", "promises.md", "index.md")
NEEDS = {"mpirun": "mpi4py", "torchrun": "torch", "--strategy ddp": "torch", "accelerate": "accelerate"}
NEEDS |= {"gloo": "torch", "cnn:": "torch", "gpt:": "torch", "net.py": "torch", "--tensorboard": "tensorboardX"}


def lacking(text: str) -> str:
    """What a command needs that is not here."""
    if "path/to/mnist" in text and MNIST is None:
        return "MNIST"
    missing = [package for word, package in NEEDS.items() if word in text and find_spec(package) is None]
    program = text.split()[0]
    return missing[0] if missing else "" if shutil.which(program) or program == "unisono" else program


def walk(name: str, folder: Path) -> None:
    page = PAGES[name]
    prepare(folder, page.read_text())
    passed_over = []
    for command in commands(page):
        if not command.why_not:
            if lack := lacking(command.text):
                passed_over.append(f"{command.text} (needs {lack})")
            else:
                run(command, folder)
    if passed_over:
        pytest.skip("not all were run: " + "; ".join(passed_over))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ALWAYS)
def test_the_commands_of_the_first_pages_work(name, tmp_path):
    walk(name, tmp_path)


@pytest.mark.documented
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name in PAGES if name not in ALWAYS])
def test_the_commands_of_all_other_pages_work(name, tmp_path):
    walk(name, tmp_path)
