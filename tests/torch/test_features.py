"""The table of what works with the backend in docs/unchanged-scripts.md is what a script finds."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.paths import ROOT

SCRIPT = ROOT / "tests/support/torch_features.py"
PAGE = ROOT / "docs/unchanged-scripts.md"


def documented() -> dict[str, str]:
    table = PAGE.read_text().partition("| feature | with `unisono` |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|$", table, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    command = [sys.executable, "-P", "-m", "unisono", "launch", "--ranks", "2", str(SCRIPT)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return dict(json.loads(line) for line in ended.stdout.splitlines() if line.startswith("["))


def test_every_row_was_tried(found):
    rows = documented()
    assert list(rows)[1:] == list(found)  # the first is the line under the heading


@pytest.mark.parametrize("name", [name for name, says in documented().items() if not says.startswith("-")])
def test_a_row_says_what_happens(found, name):
    if name == "torchmetrics" and find_spec("torchmetrics") is None:
        pytest.skip("torchmetrics is not installed")
    works = documented()[name] == "works"
    assert (found[name] == "works") == works, found[name]


def test_refusals_name_the_way_out(found):
    for name in ("tensors on GPUs", "`ReduceOp.PREMUL_SUM`"):
        assert found[name].startswith("UserError:")
        assert "HINT" in found[name]


def test_the_page_is_found():
    assert Path(PAGE).exists()
