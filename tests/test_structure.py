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
    "tracebacks", "extras", "errors", "terminal", "parsing", "files", "aligned",
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


OWN_WORDS = {
    "parsing.py": "the one place",
    "comm/telling.py": "what a rank of the same run said, over its communicator",
    "data/sharing.py": "what a rank of the same run wrote to their shared memory",
    "doctor/examining.py": "what our own probe said, in a pipe",
    "launch/errand.py": "what the other machine of the same run said",
    "launch/fresh.py": "what our own parent gave us",
    "launch/values.py": "what our own child said, in a pipe",
    "measure/bench.py": "what our own child said, in a pipe",
    "measure/bench_worker.py": "what our own parent gave us",
    "measure/tune/tuning.py": "what our own child said, in a pipe",
    "measure/tune/worker.py": "what our own parent gave us",
    "train/snapshots/manifest.py": "what it has just made itself",
}
"""Files that parse JSON or TOML by themselves, and whose words it is: nobody else's."""


def test_strangers_texts_are_parsed_in_one_place():
    """`parsing` bounds what a text may make of memory and stack; json and tomllib do not."""
    direct = re.compile(r"\b(json|tomllib)\.loads?\(")
    users = {str(path.relative_to(SOURCE)) for path in FILES if direct.search(path.read_text())}
    later = {"comm/roll_call.py", "train/resuming.py", "train/snapshots/files.py", "train/weights.py"}  # to be changed
    assert users - OWN_WORDS.keys() - later == set(), "use unisono.parsing, or say here whose words it parses"


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """(name of the function or method, the call)."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [(getattr(call.func, "attr", getattr(call.func, "id", "")), call) for call in found]


def reads_as_the_locale(name: str, call: ast.Call) -> bool:
    """Whether a call reads text in the encoding of the locale, which on a cluster may be ASCII."""
    words = {word.arg: word.value for word in call.keywords}
    if name == "read_text":
        return not call.args and "encoding" not in words
    if name == "TemporaryFile":
        return bool(call.args) and "encoding" not in words
    text = words.get("text")
    return isinstance(text, ast.Constant) and text.value is True and not {"errors", "encoding"} & words.keys()


def test_texts_are_not_read_in_the_encoding_of_the_locale():
    later = {
        "cli/submit.py", "cli/submitted.py", "launch/slurm/client.py", "train/journal.py", "train/resuming.py",
        "train/rundir.py", "train/weights.py",
    }  # to be changed  # fmt: skip
    found = {str(path.relative_to(SOURCE)) for path in FILES for call in calls(path) if reads_as_the_locale(*call)}
    assert found - later == set()


def test_texts_are_printed_in_one_place():
    """`terminal` shows what would write to the terminal: names and messages may be a stranger's."""
    plain = {"doctor/probe.py", "measure/bench_worker.py", "measure/tune/worker.py", "terminal.py"}  # JSON, in a pipe
    for path in FILES:
        name, text = str(path.relative_to(SOURCE)), path.read_text()
        prints = any(called == "print" and isinstance(call.func, ast.Name) for called, call in calls(path))
        if prints and name not in plain:
            assert re.search(r"from unisono\.terminal import .*\bprint\b", text), f"{name} prints by itself"
        if name != "report/console.py":
            assert "rich.console.Console" not in imported(path), f"{name}: use unisono.report.console"


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
