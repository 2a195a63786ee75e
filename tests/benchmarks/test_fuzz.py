"""`benchmarks/fuzz.py`: it finds faults that are planted, each under its own heading, and repeats an input by its
number."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from fuzz import Found, draw_input, printable, shares, show
from fuzz_inputs import KINDS
from fuzz_sandbox import Finding, Sandbox
from fuzz_worker import last_line

from support.paths import BENCHMARKS, IMPORTS

PLANTED = """
import json, os, sys, time
from dataclasses import replace
from pathlib import Path
import unisono.cli.main
from fuzz_sandbox import MARK, SECRET, Sandbox
from fuzz_worker import Input, Limits, adopt_orphans, run_input

def leave_process():
    if os.fork() == 0:
        time.sleep(600)

def raise_error():
    raise ValueError("13 planted")

def fill():
    held = bytearray(400 << 20)

def allocate():
    held = bytearray(9 << 30)

shared = Path(f"/dev/shm/planted-{os.getpid()}")
faults = {
    "nothing": lambda: None,
    "error": raise_error,
    "sleep": lambda: time.sleep(600),
    "loop": lambda: [None for _ in iter(int, 1)],
    "fill": fill,
    "allocate": allocate,
    "code": lambda: sys.exit(3),
    "signal": lambda: os.kill(os.getpid(), 11),
    "process": leave_process,
    "draft": lambda: Path(os.environ["TMPDIR"], "draft").touch(),
    "shared": shared.touch,
    "outside": lambda: Path("../outside/secret.txt").write_text("other"),
    "removed": lambda: Path("../outside/folder").rmdir(),
    "executed": lambda: Path(MARK).touch(),
    "copied": lambda: Path("copy.txt").write_text(f"it says {SECRET}"),
    "printed": lambda: print(SECRET),
    "escape": lambda: print("\\x1b[2J"),
    "user": lambda: unisono.cli.main.fail("a mistake", 2),
}
adopt_orphans()
usual = Limits(seconds=60.0, memory_bytes=300 << 20, grace_s=0.2)
found = {}
for name, fault in faults.items():
    sandbox = Sandbox(Path(sys.argv[1], name), Path(sys.argv[1])).make()
    limits = replace(usual, seconds=0.4) if name in ("sleep", "loop") else usual
    found[name] = run_input(Input(call=fault), sandbox, limits)
shared.unlink()
print(json.dumps(found))
"""
EXPECTED = {
    "nothing": [], "user": [], "error": ["traceback"], "sleep": ["hang"], "loop": ["hang"], "fill": ["memory"],
    "allocate": ["traceback"], "code": ["wrong exit code"], "signal": ["wrong exit code"],
    "process": ["left behind"], "draft": ["left behind"], "shared": ["left behind"],
    "outside": ["changed outside"], "removed": ["changed outside"], "executed": ["executed"],
    "copied": ["leak"], "printed": ["leak"], "escape": ["control"],
}  # fmt: skip
"""Under which headings each of the planted faults is found."""


@pytest.mark.timeout(600)
def test_a_short_run_finds_nothing():
    """Of all kinds, a new seed each time: what it prints says it, and how to repeat each finding."""
    command = [sys.executable, str(BENCHMARKS / "fuzz.py"), "--inputs", "150", "--deadline", "60"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, f"{ended.stdout[-6000:]}\n{ended.stderr[-2000:]}"


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> dict[str, list[list[str]]]:
    """What was found of each."""
    command = [sys.executable, "-c", PLANTED, str(tmp_path_factory.mktemp("planted"))]
    ended = subprocess.run(command, env=os.environ | IMPORTS, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_planted_fault_is_found_under_its_heading(fault, planted):
    assert [heading for heading, _ in planted[fault]] == EXPECTED[fault], planted[fault]


def test_a_finding_says_what_was_seen(planted):
    assert planted["error"][0][1].endswith("ValueError: 13 planted")
    assert planted["code"][0][1].startswith("3 instead of 0 or 2")
    assert planted["signal"][0][1].startswith("-11 instead of")
    assert planted["outside"][0][1] == "outside/secret.txt was changed"
    assert planted["removed"][0][1] == "outside/folder was removed"


@pytest.mark.parametrize("kind", ["npy", "npz", "idx", "text", "fetch", "http", "rendezvous"])
def test_an_input_is_a_matter_of_its_number(kind, tmp_path):
    drawn = []
    for name, number in (("a", 7), ("b", 7), ("c", 8)):
        sandbox = Sandbox(tmp_path / name, tmp_path).make()
        given = draw_input(kind, number, sandbox)
        drawn.append((given.argv, given.about, given.allowed, sorted(path.name for path in sandbox.work.rglob("*"))))
    assert drawn[0] == drawn[1] != drawn[2]


def test_every_kind_has_its_share():
    found = shares(20_000, list(KINDS))
    assert abs(sum(found.values()) - 20_000) < len(KINDS)
    assert min(shares(3, list(KINDS)).values()) == 1


def test_one_cause_is_shown_once_with_what_repeats_it(capsys):
    finding = Finding("traceback", "data/idx.py:80 ValueError: cannot reshape array of size 7")
    other = Finding("traceback", "data/idx.py:80 ValueError: cannot reshape array of size 13")
    found = [Found("idx", 3, "byte 5\x1b", finding), Found("idx", 4, "byte 6", other)]
    assert not show(found, {"idx": 20}, Counter({"idx": 2}), 5, 1.0)
    told = capsys.readouterr().out
    assert told.startswith("2 x idx: traceback: data/idx.py:80 ValueError")
    assert "python benchmarks/fuzz.py --replay idx:3\n" in told
    assert "\x1b" not in told
    assert told.endswith("2 findings, 1 causes\n")
    assert show([], {"idx": 20}, Counter(), 5, 1.0)


def test_the_line_of_a_traceback_is_where_unisono_was_and_what_was_raised():
    text = (
        "unisono: Traceback (most recent call last):\n"
        '  File "/x/src/unisono/data/idx.py", line 80, in read\n    array = f()\n'
        '  File "/y/numpy/core.py", line 3, in f\nValueError: no\nmore\n(left out: 3 frames)\n'
    )
    assert last_line(text) == "data/idx.py:80 ValueError: no"
    assert printable("a\x1b\udcff\nb") == "a\\x1b\\udcff\nb"
