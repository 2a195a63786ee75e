"""The examples run, give what they say, and a script is moved by changing six lines."""

import ast
import difflib
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from itertools import pairwise

import pytest

from support.needs import needs_torch
from support.paths import QUIET_END, ROOT, worker
from unisono.environment.os_environ import child_environment

RUNNER = worker("example_runner")[1]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
GPT = "examples/05_gpt_unisono.py --steps 12"
RUN = tuple(f"examples/04_run.py --ranks {ranks}" for ranks in (1, 3))
ALONE = (
    *RUN,  # the first: once torch has started threads, ranks would be fresh interpreters
    "examples/01_plain_pytorch.py", "examples/01_unisono.py", "examples/02_unisono.py", "examples/03_unisono.py",
    "examples/05_gpt.py --steps 12", GPT,
)  # fmt: skip
LAUNCHED = ("examples/01_unisono.py", "examples/02_ddp.py", "examples/03_accelerate.py", GPT)


def output_of(*arguments: str) -> str:
    command, environment = [sys.executable, "-W", "error", *arguments], child_environment(threads=1)
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


@cache
def alone() -> dict[str, str]:
    """What each script printed on one process, or on ranks that it started itself."""
    parts = output_of(RUNNER, *ALONE).split("=== ")[1:]
    return {line: text for line, text in (part.split("\n", 1) for part in parts)}


@cache
def launched(line: str) -> str:
    """What a script printed on two processes of torchrun, of which nothing was left when it ended."""
    return output_of(*TORCHRUN, "--local-ranks-filter=0", QUIET_END, *line.split())


def numbers(text: str, word: str) -> list[float]:
    words = text.replace(",", " ").split()
    return [float(after) for before, after in pairwise(words) if before == word]


def code_of(name: str) -> list[str]:
    """The lines of a script under its docstring."""
    text = (ROOT / "examples" / name).read_text()
    end = ast.parse(text).body[0].end_lineno
    return [line for line in text.splitlines()[end:] if line]


def test_every_example_is_run():
    run = {line.split()[0] for line in (*ALONE, *LAUNCHED)}
    assert run == {f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.suffix == ".py"}


@pytest.mark.parametrize(
    ("plain", "moved", "gone"), [("01_plain_pytorch.py", "01_unisono.py", 2), ("05_gpt.py", "05_gpt_unisono.py", 3)]
)
def test_a_plain_script_is_moved_by_six_lines(plain, moved, gone):
    """That of a GPT, too, with parameter groups, clipping, a schedule and a measure on the way."""
    lines = list(difflib.ndiff(code_of(plain), code_of(moved)))
    added = [line for line in lines if line.startswith("+ ")]
    removed = [line for line in lines if line.startswith("- ")]
    assert (len(added), len(removed)) == (6, gone), added


@needs_torch
def test_a_moved_script_learns_and_gives_the_same_on_two_ranks():
    for name in ("examples/01_plain_pytorch.py", "examples/01_unisono.py"):
        assert numbers(alone()[name], "accuracy")[0] > 0.9, name
    assert launched("examples/01_unisono.py") == alone()["examples/01_unisono.py"]


@needs_torch
def test_ranks_that_unisono_starts_have_the_same_bits():
    one, three = (alone()[line].splitlines() for line in RUN)
    assert len(one[-1]) == 64, "the hash of the weights"
    assert one[-1] == three[-1]


@needs_torch
def test_ddp_and_its_move_learn_alike():
    losses = [numbers(text, "loss") for text in (launched("examples/02_ddp.py"), alone()["examples/02_unisono.py"])]
    assert [len(each) for each in losses] == [4, 4]
    for each in losses:
        assert each[-1] < 0.2 < 1.0 < each[0]
    assert abs(losses[0][-1] - losses[1][-1]) < 0.05


@needs_torch
@pytest.mark.skipif(not find_spec("accelerate"), reason="accelerate is not installed")
def test_accelerate_and_its_move_learn_alike():
    for text in (launched("examples/03_accelerate.py"), alone()["examples/03_unisono.py"]):
        found = numbers(text, "accuracy")
        assert len(found) == 4
        assert found[-1] > 0.85


@needs_torch
def test_the_gpt_has_the_same_bits_on_one_rank_and_on_two():
    one, two = alone()[GPT], launched(GPT)
    assert one == two
    assert len(one.splitlines()[-1]) == 64, "the hash of the weights"
    for name in ("examples/05_gpt.py --steps 12", GPT):
        first, last = numbers(alone()[name], "loss")
        assert last < 0.9 * first, name
