"""The tree's own rules: imports point downward, only one file reads the environment, heavy packages stay put."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "unisono"
LAYERS = [
    "cli", "doctor", "measure", "runs", "report", "study", "training", "storage", "launch", "supervise", "world",
    "loop", "strategies", "data", "models", "optim", "torch", "comm", "arena", "trust", "recipe", "rng", "energy",
    "os_limits", "resources", "user_code", "safetensors_file", "safe_print", "locks", "parsing", "claimed_shapes",
    "files", "environment", "messages", "errors", "python_error_advice", "optional_packages", "aligned",
]  # fmt: skip
"""From top to bottom: a file may import from its own layer and from those below."""

FILES = sorted(SOURCE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
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
    return parts[1] if parts[0] == "unisono" and parts[1:2] and parts[1] in LAYERS else None


def test_imports_point_downward():
    upward = []
    for path in FILES:
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] in ("__init__", "__main__"):
            continue
        own = layer_of(".".join(("unisono", *parts)))
        assert own, f"{parts[0]} has no place in the order of layers: add it here and to docs/architecture.md"
        layers = {module: layer_of(module) for module in imported(path)}
        higher = {module for module, layer in layers.items() if layer and LAYERS.index(layer) < LAYERS.index(own)}
        upward += [f"{'/'.join(parts)} imports {module}" for module in higher]
    assert upward == []


@pytest.mark.parametrize(
    ("package", "home"),
    [
        ("mpi4py", ["comm/mpi/library.py"]),
        ("torch", ["comm/gloo/", "launch/connect.py", "launch/torch_group.py", "storage/weights.py", "models/torch/",
                   "loop/", "strategies/external/", "measure/profile/torch_engine.py", "doctor/probes/compute.py",
                   "torch/",
                   # For types only:
                   "world.py", "training/job.py", "storage/model_card.py", "strategies/spec.py"]),
        ("accelerate", ["strategies/external/accelerate.py"]),
    ],
)  # fmt: skip
def test_heavy_packages_are_imported_in_one_place(package, home):
    users = [
        str(path.relative_to(SOURCE)) for path in FILES if package in {name.split(".")[0] for name in imported(path)}
    ]
    assert [user for user in users if not user.startswith(tuple(home))] == []


def test_only_one_file_reads_the_environment():
    readers = [str(path.relative_to(SOURCE)) for path in FILES if "os.environ" in path.read_text()]
    assert readers == ["environment/os_environ.py"]


WRITES_ELSEWHERE = {
    ("cli/bench.py", "TemporaryFile"): "a file without a name, to try the directory",
    ("cli/main.py", "os.open"): "/dev/null",
    ("doctor/probe_runner.py", "TemporaryFile"): "a file without a name, for what a probe says",
    ("doctor/probes/equal_bits.py", "TemporaryDirectory"): "a new private directory, for a run",
    ("launch/connect.py", "TemporaryDirectory"): "a new private directory, in which ranks meet",
    ("supervise/processes.py", "open"): "a pipe's descriptor",
    ("environment/os_environ.py", "os.open"): "/dev/tty",
    ("supervise/loop_supervisor.py", "os.open"): "/proc/PID/fd: the arena of another process",
    ("launch/torch_group.py", "TemporaryDirectory"): "a new private directory, in which ranks meet",
    ("measure/allreduce_bench.py", "TemporaryFile"): "a file without a name, for what ranks say",
    ("measure/tune/search.py", "TemporaryFile"): "a file without a name, for what a trial says",
    ("report/live/address.py", "TemporaryDirectory"): "a new private directory, for an address",
    ("study/study.py", "TemporaryDirectory"): "a new private directory, for a run",
    ("study/cell_process.py", "TemporaryFile"): "a file without a name, for what a run says",
    ("storage/fallback_writer.py", "mkdtemp"): "a new private directory, on another disk",
    ("storage/snapshots/disk.py", "os.rename"): "a snapshot's directory, whole, to its name",
    ("storage/weights.py", "ZipFile"): "into a file that is open",
    ("storage/weights.py", "savetxt"): "into a file that is open",
}
"""(file, call): why it may. All else that is written goes through files.py."""
WRITING_METHODS = {"write_text", "write_bytes", "touch", "rename", "symlink_to", "hardlink_to", "tofile", "to_csv"}
WRITING_CALLS = {
    "os": {"replace", "rename", "renames", "link", "symlink", "truncate", "mkfifo", "mknod"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "make_archive"},
    "tempfile": {"mkstemp", "mkdtemp", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"},
    "np": {"save", "savez", "savez_compressed", "savetxt", "memmap"},
    "torch": {"save"},
    "tarfile": {"open", "TarFile"},
    "logging": {"FileHandler", "basicConfig"},
    "safetensors": {"save_file"},
}
OPENERS = {"": 1, "io": 1, "gzip": 1, "zipfile": 1}
"""What has an `open`, a `FileIO` or a `ZipFile`, and which of its arguments is the mode; of methods it is the first."""
OURS = {"disk", "self._mail"}
"""Objects that have a `rename` of their own: snapshots/disk.py, comm/shm/p2p.py."""
READ_FLAGS = {"O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"}


def calls_in(tree: ast.AST) -> Iterator[tuple[str, str, ast.Call]]:
    """(what it is called of, name, call): ("os", "replace", ...), also after `from os import replace as r`."""
    names = {
        alias.asname or alias.name: (node.module.partition(".")[0], alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield *names.get(node.func.id, ("", node.func.id)), node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value), node.func.attr, node


def writes_in(source: str) -> set[str]:
    """The calls of a module by which it could open a file for writing, make one or rename one."""
    found = set()
    for home, name, node in calls_in(ast.parse(source)):
        if (home, name) == ("os", "open"):
            if {part.attr for part in ast.walk(node.args[1]) if isinstance(part, ast.Attribute)} - READ_FLAGS:
                found.add("os.open")
        elif name in ("open", "FileIO", "ZipFile") and home != "tarfile":
            if opened_for_writing(node, OPENERS.get(home, 0)):
                found.add(name)
        elif name in WRITING_CALLS.get(home, ()) or name == "savefig":
            if not any(map(is_memory, node.args)):
                found.add(f"os.{name}" if home == "os" else name)
        elif (name in WRITING_METHODS and home not in OURS) or (name == "replace" and home and is_of_path(node)):
            found.add(name)
    return found


def opened_for_writing(node: ast.Call, place: int) -> bool:
    """place: of the mode, among the arguments. One that is not written out might be any."""
    for mode in [key.value for key in node.keywords if key.arg == "mode"] + node.args[place : place + 1]:
        if isinstance(mode, ast.Constant):
            if isinstance(mode.value, str) and set(mode.value) <= set("rwaxbt+") and set(mode.value) & set("wax+"):
                return True
        elif place:
            return True
    return False


def is_of_path(node: ast.Call) -> bool:
    """Path.replace; that of strings has two arguments, that of dataclasses has keywords."""
    return len(node.args) == 1 and not node.keywords


def is_memory(node: ast.expr) -> bool:
    return isinstance(node, ast.NamedExpr) and ast.unparse(node.value) == "io.BytesIO()"


def test_only_one_file_opens_files_for_writing():
    """What it does for others: links, pipes and devices refused, whole files or none. See files.py."""
    found = {
        (str(path.relative_to(SOURCE)), call)
        for path in FILES
        for call in writes_in(path.read_text())
        if path != SOURCE / "files.py"
    }
    assert found == set(WRITES_ELSEWHERE)


@pytest.mark.parametrize(
    "line",
    [
        "open(p, 'w')", "open(p, mode='ab')", "open(p, kind)", "p.open('x')", "io.open(p, 'r+')", "io.FileIO(p, 'a')",
        "p.write_text(t)", "p.write_bytes(t)", "p.touch()", "p.rename(q)", "p.replace(q)", "os.open(p, os.O_WRONLY)",
        "os.open(p, os.O_RDWR | os.O_CLOEXEC)", "os.open(p, os.O_RDONLY | os.O_CREAT)", "os.replace(p, q)",
        "os.link(p, q)", "figure.savefig(p)", "np.save(p, a)", "np.savez(p, a)", "torch.save(a, p)",
        "shutil.copy(p, q)", "shutil.move(p, q)", "tempfile.mkstemp()", "tempfile.NamedTemporaryFile()",
        "from os import replace\nreplace(p, q)", "from shutil import copyfile as c\nc(p, q)", "gzip.open(p, 'wb')",
        "zipfile.ZipFile(p, 'w')",
    ],
)  # fmt: skip
def test_what_writes_is_seen(line):
    assert writes_in(line)


@pytest.mark.parametrize(
    "line",
    [
        "open(p)", "open(p, 'rb')", "p.open('rb')", "worker.open(batch, 0)", "text.replace('a', 'b')", "gzip.open(p)",
        "os.open(p, os.O_RDONLY | os.O_NOFOLLOW)", "torch.save(a, memory := io.BytesIO())", "zipfile.ZipFile(p)",
        "from dataclasses import replace\nreplace(recipe, out='')", "webbrowser.open(address)",
        "from unisono.files import write_file\nwrite_file(p, t)",
    ],
)  # fmt: skip
def test_what_reads_is_let_pass(line):
    assert not writes_in(line)


OWN_WORDS = {
    "parsing.py": "the one place",
    "data/shared_dataset.py": "what a rank of the same run wrote to their shared memory",
    "doctor/probe_runner.py": "what our own probe said, in a pipe",
    "launch/spawn_entry.py": "what our own parent gave us",
    "messages/packing.py": "what a process of the same run said, in a pipe or over its communicator",
    "measure/allreduce_bench_worker.py": "what our own parent gave us",
    "measure/tune/worker.py": "what our own parent gave us",
    "runs/separate_process.py": "what our own parent gave us, or child answered, in memory that only the two have",
    "storage/snapshots/manifest.py": "what it has just made itself",
}
"""Files that parse JSON or TOML by themselves, and whose words it is: nobody else's."""


def test_strangers_texts_are_parsed_in_one_place():
    """`parsing` bounds what a text may make of memory and stack; json and tomllib do not."""
    direct = re.compile(r"\b(json|tomllib)\.loads?\(")
    users = {str(path.relative_to(SOURCE)) for path in FILES if direct.search(path.read_text())}
    assert users - OWN_WORDS.keys() == set(), "use unisono.parsing, or say here whose words it parses"


BORDERS = {
    "python_error_advice.py": "CPython's texts: a home, threads, a temporary directory",
    "comm/gloo/errors.py": "gloo's texts: who is gone, what timed out",
    "launch/slurm/command.py": "what SLURM's commands print when they refuse",
    "models/torch/checks.py": "torch's texts: batch norm of one sample, unused parameters, checkpoints",
}
"""The files that may read the text of an error to find out what it means: one for each library that gives text only."""
ERROR_TEXTS = {"args", "strerror", "message", "hint", "report", "told", "reason", "summary", "said", "msg"}
SNIFFING = {
    "startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "rfind", "index", "rindex", "count",
    "removeprefix", "removesuffix", "search", "match", "fullmatch", "findall", "finditer",
}  # fmt: skip
"""Methods by which a text, or a pattern, decides something; `splitlines` only shortens what is shown."""


def error_names(function: ast.AST) -> set[str]:
    """What is an exception there: caught as, or declared as."""
    caught = {node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name}
    arguments = (node for node in ast.walk(function) if isinstance(node, ast.arg) and node.annotation)
    kinds = re.compile(r"\b\w*(Error|Exception|Failed|Lost|Timeout)\b")
    return caught | {node.arg for node in arguments if kinds.search(ast.unparse(node.annotation))}


def texts_of_errors_read_in(source: str) -> set[int]:
    """Lines that decide by the text of an error."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {line for one in (functions or [tree]) for line in _sniffed(one, error_names(one))}


def _sniffed(function: ast.AST, errors: set[str]) -> Iterator[int]:
    texts: set[str] = set()

    def is_text(node: ast.AST) -> bool:
        """Whether it is the text of an error, or a part of it."""
        match node:
            case ast.Name(name):
                return name in texts
            case ast.Attribute(ast.Name(name), attribute):
                return name in errors and attribute in ERROR_TEXTS
            case ast.Call(ast.Name("str" | "repr"), [ast.Name(name), *_]):
                return name in errors
            case ast.Call(ast.Attribute(value, _)) | ast.Subscript(value):
                return is_text(value)
            case ast.FormattedValue(ast.Name(name)):
                return name in errors
            case ast.JoinedStr(parts):
                return any(map(is_text, parts))
        return False

    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.NamedExpr(ast.Name(name), value) if is_text(value):
                texts.add(name)
    for node in ast.walk(function):
        match node:
            case ast.Compare(left, operators, others):
                decides = any(isinstance(one, ast.In | ast.NotIn | ast.Eq | ast.NotEq) for one in operators)
                if decides and any(map(is_text, [left, *others])):
                    yield node.lineno
            case ast.Call(ast.Attribute(value, attribute), arguments) if attribute in SNIFFING:
                if is_text(value) or any(map(is_text, arguments)):
                    yield node.lineno


def test_only_borders_read_what_an_error_says():
    """Errors carry facts: what to do is decided by their types and attributes, not by words that may change."""
    found = {str(path.relative_to(SOURCE)): texts_of_errors_read_in(path.read_text()) for path in FILES}
    assert {name: lines for name, lines in found.items() if lines and name not in BORDERS} == {}
    assert all(found[name] for name in BORDERS if name != "launch/slurm/command.py"), "not needed any more"


@pytest.mark.parametrize(
    "line",
    [
        "'node 0 (' in str(error)", "str(error).startswith('rank')", "str(error).partition('HINT')[0]",
        "error.args[0] == 'x'", "re.search('x', str(error))", "PATTERN.search(str(error))", "'x' not in repr(error)",
        "error.report.startswith('Traceback')", "text = str(error)\n    'x' in text", "f'{error}'.count('x')",
        "str(error).lower() == 'x'", "str(error)[:5] == 'x'", "any(sign in str(error) for sign in SIGNS)",
        "error.message.partition('HINT')", "(text := f'{error}') and text.find('x')",
    ],
)  # fmt: skip
def test_what_reads_the_text_of_an_error_is_seen(line):
    assert texts_of_errors_read_in(f"try: pass\nexcept E as error:\n    {line}")
    body = line.replace("\n    ", "; ")
    assert texts_of_errors_read_in(f"def f(error: CommError) -> None:\n    {body}")


@pytest.mark.parametrize(
    "line",
    [
        "0 in error.nodes", "error.errno in FULL", "error.exit_code == 2", "str(error).splitlines()[0]",
        "error.hint or x", "fail(str(error))", "isinstance(error, NodeLost)", "is_absent(str(error))",
        "'x' in str(path)",
    ],
)  # fmt: skip
def test_facts_of_an_error_are_let_pass(line):
    assert not texts_of_errors_read_in(f"try: pass\nexcept E as error:\n    {line}")


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """(name of the function or method, the call)."""
    found = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
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
    found = {str(path.relative_to(SOURCE)) for path in FILES for call in calls(path) if reads_as_the_locale(*call)}
    assert found == set()


def test_texts_are_printed_in_one_place():
    """`terminal` shows what would write to the terminal: names and messages may be a stranger's."""
    in_a_pipe = {"doctor/probe_entry.py", "measure/allreduce_bench_worker.py", "measure/tune/worker.py"}  # JSON
    for path in FILES:
        name, text = str(path.relative_to(SOURCE)), path.read_text()
        prints = any(called == "print" and isinstance(call.func, ast.Name) for called, call in calls(path))
        if prints and name not in in_a_pipe | {"safe_print.py"}:
            assert re.search(r"from unisono\.safe_print import .*\bprint\b", text), f"{name} prints by itself"
        if name != "report/terminal/console.py":
            assert "rich.console.Console" not in imported(path), f"{name}: use unisono.report.terminal.console"


@cache
def called(path: Path) -> set[str]:
    """What a file calls, as it is written there: np.load."""
    return {ast.unparse(node.func) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)}


def test_text_becomes_code_in_two_places():
    """The user's own code, after `trust.py` was asked; and, in `spawn_entry.py`, the program that is running
    already."""
    runs = {"exec", "eval", "compile", "__import__", "runpy.run_path", "runpy.run_module", "spec.loader.exec_module"}
    assert {path.name for path in FILES if called(path) & runs} == {"function.py", "spawn_entry.py"}


def test_nothing_is_unpickled_but_functions_of_our_own_parent():
    """Of `function_passing.py`: a rank inherits the descriptor of memory without a name, in which its parent wrote
    them."""
    packages = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
    calls = {"torch.load", "torch.jit.load", "np.load", "numpy.load"}
    for path in FILES:
        found = {name.split(".")[0] for name in imported(path)} & packages
        assert found == ({"cloudpickle"} if path == SOURCE / "launch" / "function_passing.py" else set()), path
        assert not called(path) & calls, path
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", path


def test_programs_are_started_with_an_environment_of_their_own():
    """environment/os_environ.py makes it, without the secret between machines; others call `forget_secret` first."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call):
                continue
            if ast.unparse(node.func) in ("subprocess.run", "subprocess.Popen", "subprocess.check_output"):
                assert "env" in [keyword.arg for keyword in node.keywords], f"{path}:{node.lineno}"
            if re.fullmatch(r"os\.(exec|spawn|posix_spawn)\w*|webbrowser\.open", ast.unparse(node.func)):
                assert "forget_secret" in called(path), f"{path}:{node.lineno}"


def test_interpreters_are_started_in_one_way():
    """By `python` of launcher_commands.py, which keeps strangers' modules out; scripts of jobs write its name down."""
    naming = {str(path.relative_to(SOURCE)) for path in FILES if "sys.executable" in path.read_text()}
    assert naming == {"launch/launcher_commands.py", "launch/local.py", "launch/slurm/script.py"}


def test_homes_of_nobody_are_no_error():
    """`Path.expanduser` raises RuntimeError for ~nobody; `files.expand_user` a `UserError`."""
    users = {str(path.relative_to(SOURCE)) for path in FILES if re.search(r"(?<!path)\.expanduser\(", path.read_text())}
    assert users == {"environment/os_environ.py"}  # where a missing home is told


def test_changes_of_membership_are_handled_in_one_place():
    """Everybody else gives `Round` work that may be done again."""
    handlers, raisers = set(), set()
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ExceptHandler) and node.type and "MembershipChanged" in ast.unparse(node.type):
                handlers.add(str(path.relative_to(SOURCE)))
            if isinstance(node, ast.Raise) and node.exc and "MembershipChanged" in ast.unparse(node.exc):
                raisers.add(str(path.relative_to(SOURCE)))
    assert handlers == {"arena/round.py"}
    assert raisers == {"arena/membership/member.py", "comm/shm/communicator.py", "loop/batches.py"}


def test_the_memory_of_a_run_is_made_and_attached_in_one_place():
    """arena/arena.py; others only move memory between ranks (comm/topology/shared_machine.py) or make a communicator's
    own."""
    users = {
        what: {str(path.relative_to(SOURCE)) for path in FILES if what in called(path)}
        for what in ("Segment.create", "Segment.attach", "protocol.first_view", "ArenaState", "AsyncBuffers", "Member")
    }
    assert users == {
        "Segment.create": {"arena/arena.py", "comm/topology/shared_machine.py", "launch/local.py"},
        "Segment.attach": {"arena/arena.py", "comm/topology/shared_machine.py", "launch/spawn_entry.py"},
        "protocol.first_view": {"arena/arena.py"},
        "ArenaState": {"strategies/arena/state.py"},
        "AsyncBuffers": {"strategies/asynchronous/arena/buffers.py"},
        "Member": {"arena/arena.py"},
    }


STRATEGIES = {"sync", "local", "async", "ddp", "accelerate"}
OTHER_MEANINGS = {"launch/slurm/steps.py": "the launcher of Accelerate"}


def strategies_told_apart(source: str) -> list[str]:
    """Expressions that tell strategies apart by name: comparisons, and tables to look a name up in."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            constants = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}
            arena = "arena" in constants and "allreduce" in ast.unparse(node)
            if constants & STRATEGIES or arena:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            values = [leaf.value if isinstance(leaf, ast.Constant) else None for leaf in node.elts]
            if values and set(values) <= STRATEGIES:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.match_case):
            constants = {leaf.value for leaf in ast.walk(node.pattern) if isinstance(leaf, ast.Constant)}
            found += [ast.unparse(node.pattern)] if constants & STRATEGIES else []
    return found


def test_strategies_are_told_apart_in_the_registry_only():
    """Others ask the spec of a recipe: `registry.of(recipe).asynchronous`."""
    found = {
        name: told
        for path in FILES
        if not (name := str(path.relative_to(SOURCE))).startswith("strategies/")
        and (told := strategies_told_apart(path.read_text()))
    }
    assert found.keys() == OTHER_MEANINGS.keys(), found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("recipe.strategy == 'async'", True), ("'local' != name", True), ("name in ('sync', 'local')", True),
        ("OURS = ('sync', 'local')", True), ("recipe.allreduce != 'arena'", True),
        ("match name:\n case 'ddp': pass", True),
        ("run.recipe.get('strategy') == 'local'", True), ("replace(recipe, strategy='sync')", False),
        ("recipe.allreduce == 'native'", False), ("find_spec('accelerate') is None", False),
        ("EXTRAS = ('torch', 'accelerate')", False),
    ],
)  # fmt: skip
def test_telling_strategies_apart_is_seen(line, told):
    assert bool(strategies_told_apart(line)) is told


def test_the_supervisor_names_no_strategy():
    """Nor does it import one."""
    supervisor = re.compile(
        r"strategies\.(arena\.(sync|spec)|external\.(spec|ddp|accelerate)|local|asynchronous|messages|spec|registry)\b"
    )
    for path in (SOURCE / "launch").rglob("*.py"):
        assert not supervisor.search(path.read_text()), path
        constants = {node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)}
        assert path.parent.name == "slurm" or not constants & STRATEGIES, path
    assert not any("asynchronous" in name for name in imported(SOURCE / "runs" / "supervised_training.py"))


def test_files_are_short():
    long = {str(path.relative_to(SOURCE)): n for path in FILES if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_every_file_says_what_it_is():
    silent = [path for path in FILES if path.read_text() and not ast.get_docstring(parsed(path))]
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


OLD_WORDS = {
    "attendant", "bells", "canon", "clerk", "courier", "crew", "dealing", "desk", "doubts", "errand", "farewell",
    "handover", "homing", "journeys", "keeping", "lookout", "newcomers", "outpost", "parcel", "pens", "recount",
    "reforming", "refuge", "regrouped", "remarks", "rescuing", "rhythm", "seating", "sharers", "switchboard", "team",
    "vigil", "vouch", "wires",
}  # fmt: skip
"""Private words that names and texts once had; the architecture page has the terms that are used now."""


def old_words_in(text: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+", text)} & OLD_WORDS


def test_old_words_stay_out_of_names_and_texts():
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in FILES}
    assert {name: found for name, text in texts.items() if (found := old_words_in(name) | old_words_in(text))} == {}


def test_old_words_are_seen_in_names():
    assert old_words_in("self._courier = ClerkDesk()") == {"courier", "clerk", "desk"}
