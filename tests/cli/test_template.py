"""`unisono train --write-recipe` and `unisono --install-completion`."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable

import pytest

from unisono.cli.main import app
from unisono.recipe import OPTIONS, RUN_ONLY_OPTIONS, Recipe
from unisono.recipe.reading import load


@pytest.fixture
def called(command, monkeypatch, tmp_path) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    return command


def test_every_option_is_there_with_its_default_and_explained(called, tmp_path):
    code, told, _ = called("train", "--write-recipe", "mine.toml")
    assert code == 0
    assert "unisono train mine.toml" in told
    text = (tmp_path / "mine.toml").read_text()
    assert not any(tomllib.loads(text).values())  # all defaults: nothing but comments
    assert load(str(tmp_path / "mine.toml"), {}) == Recipe()
    lines = text.splitlines()
    # What stands behind "# " of each option is TOML, and is the default.
    values = {}
    for option in OPTIONS.values():
        if option.name not in RUN_ONLY_OPTIONS:
            begin = lines.index(f"[{option.group}]")
            at = next(number for number in range(begin, len(lines)) if lines[number].startswith(f"# {option.field} = "))
            assert lines[at - 1].startswith("# ")
            values[option.name] = tomllib.loads(lines[at].removeprefix("# "))[option.field]
    assert Recipe().with_options(**values) == Recipe()
    assert "# ---- Processes and threads ----" in lines
    assert not [line for line in lines[3:] if "  " in line]
    assert not (tmp_path / "runs").exists()


def test_what_was_given_stands_as_it_is(called, tmp_path):
    assert called("train", "r2", "--epochs", "7", "--write-recipe", "mine.toml")[0] == 0
    assert load(str(tmp_path / "mine.toml"), {}) == load("r2", {"epochs": 7})
    assert "epochs" in tomllib.loads((tmp_path / "mine.toml").read_text())["learning"]
    assert "seed" not in tomllib.loads((tmp_path / "mine.toml").read_text())["learning"]


def test_the_shell_completes_commands_and_options(tmp_path):
    """As bash does it when TAB is pressed."""
    home = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "unisono", "--install-completion", "--shell", "bash"]
    for _ in range(2):
        ended = subprocess.run(command, env=home, capture_output=True, text=True, timeout=60, check=True)
    (script,) = (path for path in tmp_path.rglob("unisono") if path.is_file())
    assert str(script) in ended.stdout.replace("\n", "")
    assert (tmp_path / ".bashrc").read_text().count("Load unisono completion") == 1
    for words, expected in ((["unisono", "re"], "report"), (["unisono", "train", "--write"], "--write-recipe")):
        line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _unisono; echo ${{COMPREPLY[@]}}"
        found = subprocess.run(
            ["bash", "-c", f"source {script}; {line}"], capture_output=True, text=True, timeout=60, check=True
        )
        assert expected in found.stdout.split()


def test_completion_scripts_can_be_made_for_every_shell():
    for shell in ("bash", "zsh", "fish"):
        assert "doctor" in app.generate_completion(shell=shell)
