"""Mutations: does the test suite catch faults that are put into the code?

    python benchmarks/mutations.py --count 36 --seed 1               # about half an hour on 2 cores
    python benchmarks/mutations.py --tree ../older --count 36        # another checkout, to compare with

Each mutant is one small change of one function: a condition negated, a statement dropped, < made <=, + made -. It is
made in a copy of the package, which comes first on the path of the tests of that part. A mutant is caught if a test
fails or hangs. Prints a line for each mutant and a total for each part.

Limits: some mutants change nothing that matters (a log line, a fast path), so a survivor is a place to look at, not a
fault by itself.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 400.0
"""For the tests of one mutant; longer is a hang."""


@dataclass(frozen=True)
class Part:
    """Some modules, and the tests that are to catch faults in them. Paths that are not there are left out: the tree may
    be an older one."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]


PARTS = (
    Part(
        "arena",
        ("arena/*.py", "arena/sync/*.py", "arena/membership/*.py", "arena/memory/*.py"),
        ("tests/arena", "tests/faults/test_phases.py"),
    ),
    Part(
        "strategies",
        (
            "strategies/arena/*.py", "strategies/machines/*.py", "strategies/local/*.py", "strategies/sync.py",
            "strategies/maker.py", "strategies/owner.py", "strategies/dealing.py", "strategies/shared.py",
            "strategies/joining.py", "strategies/nodes/*.py", "strategies/local.py", "strategies/states.py",
        ),
        (
            "tests/strategies/arena", "tests/strategies/machines", "tests/strategies/nodes", "tests/strategies/local",
            "tests/strategies/test_sync.py", "tests/strategies/test_local.py", "tests/strategies/test_dealing.py",
            "tests/faults/test_kept_shards.py", "tests/faults/test_phases.py",
        ),
    ),
    Part(
        "supervise",
        (
            "supervise/*.py", "launch/supervisor.py", "launch/crew.py", "launch/lookout.py", "launch/losses.py",
            "launch/newcomers.py", "launch/reforming.py", "launch/sharers.py", "launch/stacks.py",
        ),
        (
            "tests/supervise", "tests/launch/test_supervisor.py", "tests/launch/test_crew.py",
            "tests/launch/test_lookout.py", "tests/launch/test_losses.py", "tests/launch/test_newcomers.py",
            "tests/launch/test_sharers.py", "tests/launch/test_signals.py", "tests/faults/test_joining.py",
            "tests/faults/test_stalls.py",
        ),
    ),
    Part(
        "runs",
        (
            "runs/*.py", "runs/hosts/*.py", "runs/run_modes/*.py", "runs/snapshots/*.py", "storage/snapshots/*.py",
            "train/team.py", "train/unwatched.py", "train/saving.py", "train/snapshots/*.py", "cli/parent.py",
            "cli/recorder.py",
        ),
        (
            "tests/runs", "tests/storage/snapshots", "tests/train/test_team.py", "tests/train/test_unwatched.py",
            "tests/train/test_saving.py", "tests/train/snapshots", "tests/cli/test_recorder.py",
            "tests/cli/test_train_command.py",
        ),
    ),
)  # fmt: skip
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise)


@dataclass(frozen=True)
class Mutant:
    """One change: the `number`-th place of a file where an operator applies."""

    path: Path
    number: int
    line: int
    what: str


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Nodes inside functions that can be changed, and how."""
    seen: set[int] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if id(node) in seen:  # of a function inside a function
                continue
            seen.add(id(node))
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                yield node, "condition negated"
            elif isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
                yield node, "comparison changed"
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                yield node, "+ and - exchanged"
            elif isinstance(node, DROPPED) and not isinstance(getattr(node, "value", None), ast.Constant | ast.Yield):
                yield node, "statement dropped"


def mutate(source: str, number: int) -> str:
    """The source with its `number`-th place changed."""
    tree = ast.parse(source)
    target = list(places(tree))[number][0]
    if isinstance(target, ast.If | ast.While | ast.IfExp):
        target.test = ast.UnaryOp(ast.Not(), target.test)
    elif isinstance(target, ast.Compare):
        target.ops[0] = FLIPPED[type(target.ops[0])]()
    elif isinstance(target, ast.BinOp):
        target.op = ast.Sub() if isinstance(target.op, ast.Add) else ast.Add()
    else:
        tree = _Drop(target).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


class _Drop(ast.NodeTransformer):
    """Replaces one statement by `pass`."""

    def __init__(self, target: ast.AST) -> None:
        self._target = target

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if node is self._target else self.generic_visit(node)


def draw(package: Path, part: Part, count: int, rng: random.Random) -> list[Mutant]:
    """So many mutants of a part, all different."""
    files = sorted({path for pattern in part.sources for path in package.glob(pattern) if path.name != "__init__.py"})
    found = [
        Mutant(path.relative_to(package), number, getattr(node, "lineno", 0), what)
        for path in files
        for number, (node, what) in enumerate(places(ast.parse(path.read_text())))
    ]
    return rng.sample(found, min(count, len(found)))


def fate(tree: Path, part: Part, mutant: Mutant) -> str:
    """What the tests of its part make of a mutant: caught, hangs or survived."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "unisono"
        shutil.copytree(tree / "src/unisono", package, ignore=shutil.ignore_patterns("__pycache__"))
        target = package / mutant.path
        target.write_text(mutate(target.read_text(), mutant.number))
        tests = [path for path in part.tests if (tree / path).exists()]
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "90", *tests]
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        if not (package / "torch").exists():  # an older tree has no backend for torch to load by itself
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        with subprocess.Popen(
            words, cwd=tree, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return "hangs"
        if process.returncode == 0:
            return "survived"
        failed = next(
            (line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), f"exit {process.returncode}"
        )
        return f"caught by {failed.split(' - ')[0].rpartition('/')[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="a checkout of unisono")
    parser.add_argument("--count", type=int, default=36, help="mutants, of all parts together")
    parser.add_argument("--parts", default=",".join(part.name for part in PARTS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options = parser.parse_args()
    tree = options.tree.resolve()
    chosen = [part for part in PARTS if part.name in options.parts.split(",")]
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    totals: Counter[tuple[str, str]] = Counter()
    for part in chosen:
        for mutant in draw(tree / "src/unisono", part, -(-options.count // len(chosen)), copy.copy(rng)):
            result = fate(tree, part, mutant)
            totals[part.name, result.split()[0]] += 1
            print(f"{part.name:10} {mutant.path}:{mutant.line} {mutant.what}: {result}", flush=True)
    for part in chosen:
        counts = ", ".join(f"{count} {name}" for (of, name), count in sorted(totals.items()) if of == part.name)
        print(f"{part.name}: {counts}")


if __name__ == "__main__":
    main()
