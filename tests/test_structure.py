"""The tree's own rules: imports point downward, only one file reads the environment, heavy packages stay put."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "unisono"
LAYERS = [
    "cli", "doctor", "measure", "report", "study", "train", "launch", "world", "loop", "strategies", "data", "models",
    "optim", "comm", "arena", "recipe_reading", "recipe", "rng", "energy", "resources", "own", "own_code",
    "tracebacks", "extras", "safetensors_file", "errors", "parsing", "shapes", "files", "aligned",
]  # fmt: skip
"""From top to bottom: a file may import from its own layer and from those below."""

FILES = sorted(SOURCE.rglob("*.py"))


@cache
def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_package_that_is_imported_is_declared():
    """What comes along with another package today may not tomorrow."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(each for more in project["optional-dependencies"].values() for each in more)]
    declared = {re.split(r"[^\w-]", text)[0].lower().replace("-", "_") for text in needed}
    names = {module.split(".")[0] for path in FILES for module in imported(path)}
    distributions = packages_distributions()
    for name in names - {"unisono"} - sys.stdlib_module_names:
        packages = {package.lower().replace("-", "_") for package in distributions.get(name, [name])}
        assert packages & declared, f"{name} is imported, and not in pyproject.toml"


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "unisono" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    if own in ("__init__", "__main__"):
        return
    assert own in LAYERS, f"{own} has no place in the order of layers: add it here and to docs/architecture.md"
    for module in imported(path):
        layer = layer_of(module)
        assert layer is None or LAYERS.index(layer) >= LAYERS.index(own), f"{own} imports {module}"


@pytest.mark.parametrize(
    ("package", "home"),
    [
        ("mpi4py", ["comm/mpi_library.py"]),
        (
            "torch",
            [
                "comm/torch_",
                "launch/connect.py",
                "launch/torch_group.py",
                "train/weights.py",
                "models/torch/",
                "loop/",
                "world.py",  # for types only
                "train/model_card.py",  # as well
                "strategies/torch_",
                "strategies/harness.py",
                "strategies/ddp.py",
                "strategies/accelerate.py",
                "strategies/peers.py",
                "measure/profile/torch_engine.py",
                "doctor/probes/torch.py",
            ],
        ),
        ("accelerate", ["strategies/accelerate.py"]),
    ],
)
def test_heavy_packages_are_imported_in_one_place(package, home):
    users = [
        str(path.relative_to(SOURCE)) for path in FILES if package in {name.split(".")[0] for name in imported(path)}
    ]
    assert [user for user in users if not user.startswith(tuple(home))] == []


def test_only_one_file_reads_the_environment():
    readers = [path.name for path in FILES if "environ" in path.read_text() and "os.environ" in path.read_text()]
    assert readers == ["environments.py"]


def test_files_are_short():
    long = {str(path.relative_to(SOURCE)): n for path in FILES if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_every_file_says_what_it_is():
    silent = [path for path in FILES if path.read_text() and not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['unisono', '--help']\n"
        "from unisono.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'torch', 'mpi4py', 'matplotlib', 'accelerate'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
