"""Which files the user's own code is made of: the one that is named, and the modules beside it that it imports.

    files_of(Path("mine.py"))        # [mine.py, layers.py, parts/__init__.py, parts/attention.py]

The one idea: a change of a helper is a change of the network. So what a file imports from its own directory (which is
importable while it runs, see `function.py`), and what that imports in turn, belongs to it, also a compiled module
(.so), which Python prefers to a source of the same name. The files are read, never run.

Limits: imports that are made by calls (importlib), what a compiled module imports, packages that are installed and
files of data that the code opens are not seen.
"""

import ast
import hashlib
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES)
"""In the order in which they are looked for: see `function.py`."""


def file_in(spec: str) -> str:
    """The file of `path.py:function`, as it is written there; empty for anything else, such as a name of ours."""
    return spec.rpartition(":")[0] if ".py:" in spec else ""


def files_of(file: Path, source: bytes | None = None) -> list[Path]:
    """The file itself first, the others in the order of their names. source: what the file held when it was read."""
    root = _root(file)
    found, left = {file.resolve(): file}, [file]
    while left:
        one = left.pop()
        for helper in _imported(one, root, source if one is file else None):
            if helper.resolve() not in found:
                found[helper.resolve()] = helper
                left.append(helper)
    first, *others = found.values()
    return [first, *sorted(others)]


def sha256_of(file: Path, source: bytes | None = None) -> str:
    """The hash of a file and what it imports from beside it, wherever they lie; for a file alone that of its contents.
    source: what the file held when it was read."""
    _, *others = files_of(file, source)
    digest, root = hashlib.sha256(file.read_bytes() if source is None else source), _root(file)
    for helper in others:
        digest.update(f"\0{helper.relative_to(root)}\0{hashlib.sha256(helper.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()


def _root(file: Path) -> Path:
    """Where it imports from; as it was given, unless the file is a link into another directory."""
    there = file.resolve().parent
    return file.parent if file.parent.resolve() == there else there


def _imported(file: Path, root: Path, source: bytes | None) -> Iterator[Path]:
    """The modules under `root` that a file's import statements name; none of a file that is no Python."""
    try:
        tree = ast.parse(file.read_bytes() if source is None else source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # the code that runs it will say more
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _package(file, node.level, root) if node.level else root
            if base is not None:
                for alias in node.names:  # which may be a module, or something in one
                    yield from _modules(base, f"{node.module}.{alias.name}" if node.module else alias.name)


def _package(file: Path, level: int, root: Path) -> Path | None:
    """The directory that so many dots mean; None if that is not within `root`."""
    folders = [file.parent, *file.parent.parents]
    inside = [folder for folder in folders if folder == root or root in folder.parents]
    return inside[level - 1] if level <= len(inside) else None


def _modules(base: Path, dotted: str) -> Iterator[Path]:
    """For a.b.c those of a, a.b and a.b.c that are files under `base`: all of them are run."""
    folder = base
    for name in dotted.split("."):
        packages = (folder / name / f"__init__{suffix}" for suffix in _SUFFIXES)
        for candidate in (*packages, *(folder / f"{name}{suffix}" for suffix in _SUFFIXES)):
            if candidate.is_file():
                yield candidate
                break
        folder = folder / name
