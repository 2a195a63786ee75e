"""`unisono train --strategy ddp` and `accelerate` as a user meets them: alone, under torchrun, with other names."""

import subprocess
from pathlib import Path

import pytest

from support.cli.forked_command import forked
from support.cli.train_command import COMMAND, summary_of
from support.cli.train_command import train as train_any
from support.needs import needs_torch
from support.paths import QUIET_END
from unisono.environment.os_environ import child_environment, torch_variables
from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.recipe.reading import load

SMALL = ["--model", "bn-mlp:16", "--epochs", "3", "--ranks", "2"]


def train(*arguments: str, cwd: Path, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND[:1], *launcher, *COMMAND[1:]]
    return train_any(*arguments, cwd=cwd, command=command, environment=child_environment(threads=1))


@needs_torch
def test_the_run_directory_is_the_same_whoever_starts_the_ranks(tmp_path):
    ended = train(*SMALL, "--strategy", "ddp", "--out", "one", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    opening = ended.stdout.splitlines()[0]
    assert "torch engine, ddp over gloo, cpu for every rank, 2 ranks x 1 thread" in opening
    assert "2 shards: other bits on other numbers of ranks" in ended.stdout
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", QUIET_END)
    ended = train(*SMALL, "--strategy", "accelerate", "--out", "two", cwd=tmp_path, launcher=launcher)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("epoch 3/3") == 1  # one rank speaks
    one, two = summary_of(tmp_path / "one"), summary_of(tmp_path / "two")
    assert (one["strategy"], one["transport"], one["engine"], one["shards"]) == ("ddp", "gloo", "torch", 2)
    assert (two["strategy"], two["transport"], two["ranks"]) == ("accelerate", "gloo", 2)
    assert one["test_accuracy"] > 0.8
    # Accelerate wraps by DDP, and it does not matter who started the ranks.
    assert two["weights_sha256"] == one["weights_sha256"]
    assert {path.name for path in (tmp_path / "one").iterdir()} == {path.name for path in (tmp_path / "two").iterdir()}


def test_other_names_of_options_on_the_command_line(tmp_path):
    words = ["--base-lr", "0.02", "--num-gpus", "1", "--write-recipe", "mine.toml"]
    assert forked("train", *words, cwd=tmp_path).returncode == 0
    recipe = load(str(tmp_path / "mine.toml"), {})
    assert (recipe.learning.lr, recipe.ranks.count) == (0.02, 1)


def test_other_names_of_options_in_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text("base_lr = 0.5\nnum_gpus = 3\n")
    recipe = load(str(tmp_path / "mine.toml"), {"lr": 0.25})
    assert (recipe.learning.lr, recipe.ranks.count) == (0.25, 3)
    (tmp_path / "both.toml").write_text("base_lr = 0.5\nlr = 0.5\n")
    with pytest.raises(UserError, match="has both lr and base_lr"):
        load(str(tmp_path / "both.toml"), {})


def test_the_shipped_recipes_have_the_defaults_of_what_they_stand_for():
    r3 = {"model": "wideresnet:10", "batch_size_per_rank": 32, "epochs": 40, "lr": 0.01, "target_accuracy": 0.85}
    r3 |= {"patience": 2, "momentum": 0.9, "ranks": 1}
    r4 = {"model": "bn-mlp:32", "batch_size_per_rank": 32, "optimizer": "adam", "lr": 0.001, "epochs": 10}
    for name, expected in (("r3", r3), ("r4", r4)):
        assert expected.items() <= load(name, {}).options().items()


def test_the_environment_is_as_before():
    environ = {"RANK": "7", "HOME": "/"}
    with torch_variables(Placement(1, 4, 1, 2, None, None, "host:29", "unisono"), 3, environ):
        assert environ == {
            "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "HOME": "/",
            "MASTER_ADDR": "host", "MASTER_PORT": "29", "OMP_NUM_THREADS": "3",
        }  # fmt: skip
        environ["MORE"] = "of a library"
    assert environ == {"RANK": "7", "HOME": "/"}
