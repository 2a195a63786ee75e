"""Mistakes of a user, command by command: one message with a hint, exit code 2, and nothing is made or changed.

What a mistake is, is tested where it is found. Here is that each command looks before it begins, and how it says so.
"""

import json
import os
import shlex
from pathlib import Path

import pytest

from support.cli.forked_command import forked
from support.report.made_run import make
from unisono.cli import bench, compare, data, predict, profile, report, scale, submit, train, tune, watch  # noqa: F401
from unisono.data.mnist_sets import NAMES

MISTAKES = [
    ("bnech", 'Did you mean "bench"'),
    ("bench --rank 2", "Did you mean --ranks"),
    ("bench --ranks 0", "--ranks 0: each must be 1 or more"),
    ("bench --ranks", "requires an argument"),
    ("bench --seconds soon", "soon"),
    ("bench extra", "extra"),
    ("bench --out /proc/nothing", "--out /proc/nothing"),
    ("train --epoch 3", "Did you mean --epochs"),
    ("train --epochs 0", "--epochs is 0"),
    ("train --lr fast", "fast"),
    ("train --ranks 2.5", "--ranks: '2.5' is not a whole number"),
    ("train --batch-size 31.6", "--batch-size is '31.6'"),
    ("train --threads 0", "--threads is 0"),
    ("train --strategy local --sync-every 1.5", "--sync-every 1.5: not a number of steps"),
    ("train r99", "shipped recipes: r1, r2"),
    ("train r1 r2 r3", "unexpected arguments 'r2', 'r3'\nHINT: leave them out"),
    ("train --data nowhere/", "nowhere"),
    ("train --transport mpi", "mpirun -n 2 unisono train --transport mpi"),
    ("train --transport nccl", "--transport nccl, but no torchrun started this process"),
    ("train --transport smoke", "there are: shm, mpi, gloo"),
    ("train --out /proc/x", "--out /proc/x"),
    ("train --write-recipe notes.txt", "--write-recipe notes.txt exists"),
    ("train --write-recipe no/such/place.toml", "No such file or directory"),
    ("submit no-such.toml", "no-such.toml"),
    ("submit --nodes 3", "--ranks 2 cannot be spread over --nodes 3"),
    ("submit --nodes 2 --ranks-per-node 2 --ranks 3", "is 4"),
    ("submit --batch-size 4 --ranks-per-node 8", "--mem SIZE leaves that out"),
    ("submit --array 0-3 --seed 1", "whose tasks give --seed"),
    ("submit --array 0-3 --array-option model", "unknown --array-option 'model'"),
    ("submit --poll-s 0 --follow", "--poll-s is 0"),
    ("submit --join-timeout -1", "--join-timeout is -1"),
    ("submit --script=a\udcff --mem 1G", "--script is b'a\\xff': more than a line of plain text"),
    ("submit --module=-x", "--module is '-x'"),
    ("submit --interface 'eth0 eth1'", "--interface is 'eth0 eth1'"),
    ("submit --script /proc/x --mem 1G", "/proc/x cannot be written"),
    ("submit --script notes.txt --mem 1G", "notes.txt exists and is no script of unisono submit's"),
    ("submit --script link.sbatch --mem 1G", "link.sbatch cannot be written: is a link"),
    ("submit --script pipe.sbatch --mem 1G", "pipe.sbatch cannot be written: is not a regular file"),
    ("submit --resume nowhere", "--resume nowhere: there is no such directory"),
    ("doctor --nodes", "HINT: start it as you start training: mpirun -n 4 unisono doctor --nodes"),
    ("doctor --nodes --num-nodes 2", "--num-nodes 2 without --main-address"),
    ("doctor --interface eth0", "options of several machines, without --nodes"),
    ("jobs", "no SLURM on this machine"),
    ("cancel 17", "no SLURM on this machine"),
    ("cancel", "requires an argument"),
    ("report nothing", "there is no run 'nothing'"),
    ("report", "RUN"),
    ("report run --out run", "is a directory"),
    ("report run --out no/such/place.html", "cannot be written: No such file or directory"),
    ("report run --out run/recipe.toml/x.html", "cannot be written: Not a directory"),
    ("report run --out notes.txt", "is no report of unisono's"),
    ("report '~nobody-of-that-name/x'", "there is no home directory ~nobody-of-that-name\nHINT: "),
    ("watch nothing", "there is no run 'nothing'"),
    ("watch run --port 70000", "--port 70000: no such port"),
    ("watch run run --terminal", "--terminal with 2 runs"),
    ("watch tune --terminal", "--terminal shows a run of unisono train; tune is a study (tune)"),
    ("weights none", "there is no run"),
    ("weights run --exprot w.npz", "--exprot"),
    ("weights", "requires an argument"),
    ("data fetch mnits", "did you mean 'mnist'"),
    ("data fetch", "requires an argument"),
    ("data check synthetic:rows=0", "rows is 0"),
    ("data fetch mnist --data-dir /proc/nothing --base-url http://127.0.0.1:1", "cannot write"),
    ("data check mnist --data-dir damaged", "not an idx file"),
    ("data chekc digits", "check"),
    ("scale --grid 2x2", "2 nodes are not reached from here"),
    ("scale --slurm --grid 1x1,2x1", "--slurm, but there is no SLURM"),
    ("scale --grid 1x1,1x100000", "--grid 1x100000: more than 4,096 ranks on one machine"),
    ("scale --repeat 0", "--repeat is 0"),
    ("scale --strategy async", "its ranks are masters and workers"),
    ("scale nowhere.toml", "recipe 'nowhere.toml'"),
    ("scale --data synthetic:rows=97 --data-dir mine", "did you mean --data mine?"),
    ("scale --dry-run --data-dir mine", "did you mean --data mine?"),
    ("scale --out /proc/nothing", "--out /proc/nothing"),
    ("scale --dry-run --grid 1x1,1x4 --shards 2", "--shards 2 is less than --ranks 4: ranks would"),
    ("scale --dry-run --grid 1x4 --strategy ddp --shards 2", "--shards 2 with --strategy ddp: a"),
    ("compare", "compare without --over"),
    ("compare --over ranks=1,9 --shards 8 --dry-run", "--shards 8 is less than --ranks 9: ranks would"),
    ("compare --grid 1x1,2x1", "2 nodes are not reached from here"),
    ("compare --grid 1x1 --over ranks=1,2", "--grid with --over ranks="),
    ("compare --time 10 --over ranks=1,2", "--time without --slurm"),
    ("predict --nodes 8..2", "--nodes 8..2"),
    ("predict --model nothing", "nothing"),
    ("tune --strategy local", "--strategy local"),
    ("tune --data-dir mine", "--data-dir mine"),
    ("tune --memory much", "much"),
    ("tune --transport gloo", "--transport gloo"),
    ("profile --sort size", "unknown --sort 'size'"),
]
"""What is typed, and what the message holds."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a run, a study, data that are damaged and files of the user's; without SLURM."""
    monkeypatch.setenv("PATH", str(tmp_path))
    make(tmp_path / "run", epochs=1)
    for folder in ("tune", "damaged"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tune" / "tune.json").write_text(json.dumps([{"ranks": 1}]))
    for name in NAMES.values():
        (tmp_path / "damaged" / name).write_text("what?")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "precious").write_text("# Made by: unisono submit, mine all the same\n")
    (tmp_path / "link.sbatch").symlink_to("precious")
    os.mkfifo(tmp_path / "pipe.sbatch")
    return tmp_path


def contents(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in place.rglob("*")}


@pytest.mark.parametrize(("words", "told"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_gives_one_message_exit_code_2_and_leaves_nothing(words, told, place):
    before = contents(place)
    ended = forked(*shlex.split(words), cwd=place)
    assert (ended.returncode, ended.stdout, ended.stderr.count("HINT")) == (2, "", 1), ended.stderr
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents(place) == before
