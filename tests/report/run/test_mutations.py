"""Runs and studies of strangers: whatever their files hold, they are reported, in bounded memory, or refused."""

import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from support.report.made_run import make, summary_of
from support.report.made_studies import ROWS, make_studies
from support.report.mutations import mutations, put
from unisono.errors import UserError
from unisono.report.html.document import document
from unisono.report.run.load import load
from unisono.report.terminal.dashboard import dashboard

SHARE = {"run": 120, "scale": 12, "compare": 12, "profile": 12, "predict": 12, "tune": 12, "bench": 12}
"""How many of the replacements are tried; which ones, the seed decides, which is drawn at every run."""
ROOM = 1 << 18
"""Of a file: enough for the square of its lines to be far beyond a gibibyte."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    make_studies(folder)
    run = make(folder / "run", epochs=3, ranks=3)
    lines = [f"{s},{what},0.7,1000,5.0,\n" for s in range(3) for what in ("node", "rank 0", "rank 1")]
    (run / "utilisation.csv").write_text("s_after_start,what,utilisation,memory_bytes,power_w,temperature_c\n")
    with open(run / "utilisation.csv", "a") as file:
        file.writelines(lines)
    (run / "energy.json").write_text(json.dumps({"energy_j": 1.5, "parts": None, "idle_ranks": []}))
    return folder


def look(path: Path) -> str:
    """All that is made of a run; the page."""
    run = load(path)
    if run.trained:
        Console(file=io.StringIO()).print(dashboard(run, 3.0))
    return document([run])


@pytest.mark.parametrize("name", SHARE)
def test_one_absurd_value_anywhere_is_reported(name, sources, tmp_path):
    every = mutations(sources / name)
    seed = random.randrange(1 << 32)
    for file, what, text in random.Random(seed).sample(every, SHARE[name]):
        told = f"seed {seed}: {file}, {what}"
        try:
            page = look(put(sources / name, tmp_path / "run", file, text))
        except UserError:
            continue
        except Exception as error:
            raise AssertionError(told) from error
        assert page.encode(), told
        # The sections of a run check each value; those of studies, which are small, may be left out with a word.
        assert name != "run" or "could not be made" not in page, told


def lines(make) -> str:
    """As many lines as there is room for."""
    made, room = [], ROOM - 100
    while (room := room - len(line := make(len(made)))) > 0:
        made.append(line)
    return "".join(made)


def bombs() -> dict[str, dict[str, str]]:
    """Small files of which something grows with the square of their length, or with a number in them."""
    epochs = lines(lambda n: f'{{"epoch":{n + 1}}}\n')
    deep = ROWS["profile"]()[:1]
    deep[0] |= {"engine": "torch", "modules": [deep[0]["modules"][0] | {"module": "a." * 99_991}]}
    stale = {"staleness_rule": "safe", "classes": 10, "order": "free", "staleness_counts": [1, 2]}
    parameters = [f"contribution:{n}" for n in range(3001)]
    return {
        "a rank of thousands": {"metrics.jsonl": epochs, "ranks.csv": "epoch,rank\n1,4095\n"},
        "many parameters": {
            "metrics.jsonl": epochs,
            "ranks.csv": ",".join(["epoch", "rank", *parameters]) + "\n1,50" + ",1" * len(parameters) + "\n",
        },
        "a name for each record": {"metrics.jsonl": lines(lambda n: f'{{"epoch":{n + 1},"n{n}":1}}\n')},
        "many names": {"utilisation.csv": "s_after_start,what,utilisation\n" + lines(lambda n: f"{n},r{n // 3},1\n")},
        "many events": {"events.jsonl": lines(lambda n: f'{{"kind":"death","position":{n + 1}}}\n')},
        "lines that are no records": {"metrics.jsonl": "x\n" * (ROOM // 2)},
        "many labels": {
            "compare.json": "["
            + lines(lambda n: f'{{"cell":"","labels":{{"a{n}":"b"}},"a{n}":"b","reason":"x"}},')[:-1]
            + "]"
        },
        "a name of many parts": {"profile.json": json.dumps(deep)},
        "a summary of a world of workers": {
            "recipe.toml": 'strategy = "async"\n',
            "summary.json": json.dumps(summary_of(3, 3) | {"masters": 1, "workers": 2**53, **stale}),
        },
    }


LOOK = """
import io, resource, sys
from pathlib import Path
from rich.console import Console
from unisono.report.terminal.dashboard import dashboard
from unisono.report.html.document import document
from unisono.report.run.load import load
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for path in sorted(Path(sys.argv[1]).iterdir()):
    run = load(path)
    page = document([run])
    if run.trained:
        Console(file=io.StringIO()).print(dashboard(run))
    print(path.name, len(page) < 1 << 23, "could not be made" not in page, run.problems[:3], sep=": ")
"""


def test_small_files_are_reported_within_a_gibibyte(sources, tmp_path):
    for name, files in bombs().items():
        shutil.copytree(sources / "run", tmp_path / name)
        for file, text in files.items():
            assert len(text) <= ROOM
            (tmp_path / name / file).write_text(text)
    ended = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stderr == ""
    told = dict(line.split(": ", 1) for line in ended.stdout.splitlines())
    assert told.keys() == bombs().keys()
    assert [name for name, line in told.items() if not line.startswith("True: True: ")] == []
    for name in ("a rank of thousands", "many parameters"):
        assert "are more than a report can hold" in told[name]
    assert re.search(r"metrics.jsonl has [\d,]+ names in [\d,]+ records", told["a name for each record"])


def test_pipes_and_devices_in_every_place_are_named(sources, tmp_path):
    run = put(sources / "run", tmp_path / "run", "energy.json", "{}")
    (run / "log").mkdir()
    names = [path.name for path in run.iterdir() if path.is_file() and path.name != ".lock"]
    for name in names:
        (run / name).unlink()
        os.mkfifo(run / name)
    os.mkfifo(run / "log" / "rank-0.txt")
    page = look(run)
    for name in names:
        assert f"{name}: is not a regular file" in page
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("/dev/zero")
    assert "metrics.jsonl: is a link, which is not followed" in load(run).problems


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("ranks.csv", r"(?m)^(\d+,\d+,\w+,[\d.]+),[\d.e-]+", r"\1,1e308"),  # a sum of times that no float holds
        ("recipe.toml", r"(?m)^epochs = .*", f"epochs = {'9' * 400}"),
        ("utilisation.csv", r"(?m),(node|rank \d),", ",7,"),  # names that are numbers
    ],
)
def test_numbers_that_nobody_thought_of(file, before, after, sources, tmp_path):
    text = (sources / "run" / file).read_text()
    changed = re.sub(before, after, text)
    assert changed != text
    assert look(put(sources / "run", tmp_path / "run", file, changed))
