"""Modules beside own code run as their source says, whatever is in __pycache__; installed packages keep their cache."""

import importlib
import importlib.util
import py_compile
import sys
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.user_code.function import UserFunction


def cache_other_code(source: Path) -> Path:
    """Byte code of something else in the place where Python looks for that of `source`, and believes it unchecked."""
    other = source.with_suffix(".txt")
    other.write_text("VALUE = 'from the cache'\n")
    cached = importlib.util.cache_from_source(str(source))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), cached, str(source), doraise=True, invalidation_mode=mode)
    return Path(cached)


@pytest.fixture
def code(tmp_path, monkeypatch) -> Path:
    """A network of a file, a module and a package beside it, each with a stranger's byte code."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for name in ("strange_helper", "strange_parts", "strange_parts.late", "strange_only", "strange_installed"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "strange_parts").mkdir()
    (tmp_path / "mine.py").write_text(
        "import strange_helper, strange_parts\n"
        "def values():\n"
        "    from strange_parts import late\n"
        "    return strange_helper.VALUE, strange_parts.VALUE, late.VALUE\n"
        "def only(): import strange_only\n"
        "def installed():\n"
        "    import strange_installed\n"
        "    return strange_installed.VALUE\n"
    )
    for name in ("strange_helper.py", "strange_parts/__init__.py", "strange_parts/late.py"):
        (tmp_path / name).write_text("VALUE = 'from the source'\n")
        cache_other_code(tmp_path / name)
    yield tmp_path / "mine.py"
    for name in [name for name in sys.modules if name.startswith("strange_")]:
        del sys.modules[name]


def test_the_source_runs_and_not_the_byte_code_in_its_cache(code):
    found = UserFunction(f"{code}:values")()
    assert found == ("from the source",) * 3


def test_finders_from_before_are_not_used(code, monkeypatch):
    monkeypatch.syspath_prepend(str(code.parent))
    for entry in (code.parent, code.parent / "strange_parts"):
        sys.path_importer_cache[str(entry)] = importlib.machinery.FileFinder(
            str(entry), (importlib.machinery.SourceFileLoader, [".py"])
        )
    assert UserFunction(f"{code}:values")() == ("from the source",) * 3


def test_byte_code_without_a_source_is_no_module(code):
    source = code.parent / "strange_only.py"
    cache_other_code(source).rename(source.with_suffix(".pyc"))
    with pytest.raises(UserError, match="No module named 'strange_only'"):
        UserFunction(f"{code}:only")()


@pytest.mark.parametrize("linked", [False, True])
def test_packages_installed_beside_the_code_keep_their_byte_code(code, monkeypatch, linked, tmp_path_factory):
    """As in a virtual environment in the project: without it, torch would be compiled in every process."""
    packages = code.parent / "venv"
    if linked:
        packages.symlink_to(tmp_path_factory.mktemp("venv"))
    else:
        packages.mkdir()
    (packages / "strange_installed.py").write_text("VALUE = 'from the source'\n")
    cache_other_code(packages / "strange_installed.py")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    assert UserFunction(f"{code}:installed")() == "from the cache"


def test_no_byte_code_is_written_beside_the_code(code):
    for cached in code.parent.rglob("*.pyc"):
        cached.unlink()
    UserFunction(f"{code}:values")()
    assert not list(code.parent.rglob("*.pyc"))
