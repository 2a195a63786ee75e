"""Sizes of the source tree, and which files a step, a `kill -9` and an own loop pass through.

    python scripts/code_metrics.py                    # this tree
    python scripts/code_metrics.py --tree ../other    # another checkout, to compare with
    python scripts/code_metrics.py --sizes-only       # without the traces, which take about a minute

The traces are real runs on this machine with a profile function in every process. It notes each file of the package
whose code runs while one of the functions in `ENTRIES` does. Prints one JSON object.
"""

import argparse
import ast
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENTRIES = {
    "step": ("Sync.step", "SyncArena.step"),
    "reform": (
        "Supervisor._judge", "Supervisor._judge_exits", "Supervisor._handle_exits",
        "Supervisor._reform", "Supervisor._change_membership",
    ),
    "machines": ("Courier.serve", "Exchanger.serve"),
}  # fmt: skip
"""What is traced -> the functions that do it, by their names in all versions of the tree."""
CHANGES = ("Member._regroup", "Member._enter_next_view")
"""A step that calls one of these was interrupted by the death of a rank."""

TRACER = '''
"""Notes the files whose code runs inside some functions. Imported by every Python process of a traced run."""
import json, os, sys, threading
FOLDER, ROOT, ENTRIES, CHANGES = os.environ["TRACE_FOLDER"], os.environ["TRACE_ROOT"], {entries}, {changes}
KIND = {{name: kind for kind, names in ENTRIES.items() for name in names}}
active, files, changed, written = [], set(), False, {{}}

def start(kind):
    active.append((None, kind))

def stop(kind):
    active.pop()
    save(kind)

def save(kind):
    global changed
    if kind == "step" and changed:
        kind = "taken_over_step"
    changed = False
    number = written[kind] = written.get(kind, 0) + 1
    if number <= 20:
        path = os.path.join(FOLDER, f"{{kind}}-{{os.getpid()}}-{{number}}.json")
        with open(path + ".draft", "w") as file:
            json.dump(sorted(files), file)
        os.rename(path + ".draft", path)
    files.clear()

def profile(frame, event, argument):
    global changed
    code = frame.f_code
    if event == "call":
        if not active and (kind := KIND.get(code.co_qualname)) and code.co_filename.startswith(ROOT):
            active.append((frame, kind))
        if active and code.co_filename.startswith(ROOT):
            files.add(code.co_filename[len(ROOT) + 1:])
            changed = changed or code.co_qualname in CHANGES
    elif event == "return" and active and active[-1][0] is frame:
        save(active.pop()[1])

sys.setprofile(profile)
'''

LOOP = """
import sys
import unisono
import unisono_trace

def work(world):
    import torch
    from torch.nn.functional import cross_entropy
    torch.manual_seed(0)
    model = torch.nn.Linear(13, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(96, 13), torch.randint(0, 5, (96,)))
    unisono_trace.start("share")
    model, optimizer = world.share(model, optimizer)
    unisono_trace.stop("share")
    batches = iter(world.batches(data, batch_size=24))
    for number, batch in enumerate(batches):
        if number == 1:
            unisono_trace.start("own_loop_step")
        for x, y in batch:
            world.backward(cross_entropy(model(x), y))
        optimizer.step()
        if number == 1:
            unisono_trace.stop("own_loop_step")

if __name__ == "__main__":
    unisono.run(work, ranks=2)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="a checkout of unisono")
    parser.add_argument("--sizes-only", action="store_true")
    parser.add_argument("--words", type=Path, help="a file of words, one a line, to count in the source")
    options = parser.parse_args()
    tree = options.tree.resolve()
    metrics: dict[str, Any] = sizes(tree)
    if options.words:
        metrics["listed_words"] = count_words(tree / "src", options.words.read_text().split())
    if not options.sizes_only:
        metrics["files_passed"] = traces(tree / "src")
    print(json.dumps(metrics, indent=1))


def sizes(tree: Path) -> dict[str, Any]:
    files = sorted((tree / "src").rglob("*.py"))
    lines = {path: len(path.read_text().splitlines()) for path in files}
    longest = max(files, key=lines.__getitem__)
    functions = [function for path in files for function in functions_of(path)]
    tests = list((tree / "tests").rglob("*.py"))
    homes = {path.parent for path in files}
    folders = [(len(list(path.glob("*.py"))), str(path.relative_to(tree))) for path in homes]
    return {
        "files": len(files), "lines": sum(lines.values()), "median_file": statistics.median(lines.values()),
        "longest_file": [str(longest.relative_to(tree)), lines[longest]], "longest_function": list(max(functions)),
        "files_per_1000_lines": round(1000 * len(files) / sum(lines.values()), 1),
        "largest_folder": list(max(folders)),
        "test_files": len(tests), "test_lines": sum(len(path.read_text().splitlines()) for path in tests),
        "readme_words": len((tree / "README.md").read_text().split()),
    }  # fmt: skip


def functions_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{path.name}:{node.name}"


def count_words(folder: Path, words: list[str]) -> dict[str, int]:
    """How often each word occurs as a word or a part of a name."""
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    parts = re.findall(r"[A-Z]?[a-z]+", text)
    counts = {word: sum(part.lower() == word for part in parts) for word in words}
    return {word: count for word, count in counts.items() if count}


def traces(source: Path) -> dict[str, Any]:
    """For each kind of trace: the number of files, and their names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tracer = TRACER.format(entries=repr(ENTRIES), changes=repr(CHANGES))
        (folder / "unisono_trace.py").write_text(textwrap.dedent(tracer))
        (folder / "sitecustomize.py").write_text("import unisono_trace\n")
        (folder / "loop.py").write_text(LOOP)
        (folder / "found").mkdir()
        path = os.pathsep.join([str(folder), str(source)])
        variables = {
            "PYTHONPATH": path,
            "TRACE_FOLDER": str(folder / "found"),
            "TRACE_ROOT": str(source / "unisono"),
            "UNISONO_SECRET": "a secret for the machines of this trace",
        }
        environment = os.environ | variables
        train_with_death(folder, environment)
        train_on_two_machines(folder, environment)
        subprocess.run([sys.executable, folder / "loop.py"], env=environment, cwd=folder, check=True, timeout=120)
        return {kind: passed(folder / "found", kinds) for kind, kinds in KINDS.items()}


KINDS = {
    "a step": ("one_machine_step",),
    "a kill -9": ("reform", "taken_over_step"),
    "a step on several machines": ("step", "machines"),
    "world.share": ("share",),
    "a step of an own loop": ("own_loop_step",),
}


REPEATED = ("one_machine_step", "step", "machines")


def passed(folder: Path, kinds: tuple[str, ...]) -> list[Any]:
    """All files of these kinds; of repeated ones (steps) those of the third, because the first ones do set-up."""
    files: set[str] = set()
    for kind in kinds:
        found = sorted(folder.glob(f"{kind}-*.json"))
        later = [path for path in found if path.stem.endswith("-3")]
        for path in later if kind in REPEATED else found:
            files |= set(json.loads(path.read_text()))
    return [len(files), sorted(files)]


def train_with_death(folder: Path, environment: dict[str, str]) -> None:
    """`unisono train` on 2 ranks, one of which is killed."""
    command = [sys.executable, "-m", "unisono", "train", "--ranks", "2", "--epochs", "400", "--out", "killed"]
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while not list((folder / "found").glob("step-*-5.json")) and time.monotonic() < deadline:
                time.sleep(0.05)
            victim = int(next((folder / "found").glob("step-*-5.json")).stem.split("-")[1])
            os.kill(victim, signal.SIGKILL)
            while not list((folder / "found").glob("taken_over_step-*")) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            process.terminate()
            process.wait(60)


def train_on_two_machines(folder: Path, environment: dict[str, str]) -> None:
    """Two supervisors on this machine, as two machines."""
    for path in sorted((folder / "found").glob("step-*")):
        path.rename(path.with_name("one_machine_" + path.name))
    common = [
        "train",
        "--num-nodes",
        "2",
        "--main-address",
        "127.0.0.1",
        "--main-port",
        "29871",
        "--epochs",
        "2",
        "--ranks-per-node",
        "1",
    ]
    machines = [
        subprocess.Popen(
            [sys.executable, "-m", "unisono", *common, "--node-id", str(number), "--out", f"machines{number}"],
            env=environment, cwd=folder, stdout=subprocess.DEVNULL,
        )
        for number in range(2)
    ]  # fmt: skip
    for machine in machines:
        machine.wait(120)


if __name__ == "__main__":
    main()
