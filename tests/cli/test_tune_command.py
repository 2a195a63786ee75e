"""`unisono tune`, as a user runs it."""

import subprocess
import sys

from unisono.energy.meter import find_counters
from unisono.recipe import load


def unisono(*words, cwd):
    command = [sys.executable, "-m", "unisono", "tune", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=cwd, check=False)


def test_a_recipe_is_found_and_written(tmp_path):
    given = ["--ranks", "1", "--threads", "1", "--batch-sizes", "64", "--seconds", "100", "--out", "o"]
    ended = unisono(*given, "--target-accuracy", "0.5", "--patience", "1", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for word in ("settings that were tried", "to accuracy", "Written: o/tuned.toml"):
        assert word in ended.stdout
    found = load(str(tmp_path / "o" / "tuned.toml"), {})
    assert (found.ranks, found.threads, found.batch_size, found.target_accuracy) == (1, 1, 64, 0.5)
    assert (tmp_path / "o" / "tune.csv").exists()


NO_ENERGY = ["--objective", "energy", "--watts-per-core", "0"] if not find_counters().found else ["--seconds", "0"]


def test_mistakes_are_told_without_a_traceback(tmp_path):
    for words in (
        ["--strategy", "local"],
        ["--objective", "money"],
        ["--memory", "much"],
        ["--transport", "gloo"],
        NO_ENERGY,
    ):
        ended = unisono(*words, cwd=tmp_path)
        assert ended.returncode == 2, words
        assert "HINT" in ended.stderr
        assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
