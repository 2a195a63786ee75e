"""The user's own code: run again as it was read; files of which no function is named, and what is suggested then."""

import importlib
import importlib.util
import os
import py_compile
import sys
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.user_code.function import UserFunction, read, without_function


def test_the_functions_of_the_file_are_suggested_and_it_is_not_run(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("raise SystemExit\ndef _help(): pass\ndef net(): pass\nclass Wide: pass\ndef deep(): pass\n")
    error = without_function("--model", str(path))
    assert isinstance(error, UserError)
    assert str(error).endswith(f"after a colon: --model {path}:net; it has net, deep")


def test_a_file_that_cannot_be_read_or_parsed(tmp_path):
    path = tmp_path / "mine.py"
    for text in (None, "def net(:\n", "\0"):
        if text is not None:
            path.write_text(text)
        assert str(without_function("--data", str(path))).endswith(f"after a colon: --data {path}:FUNCTION")


def test_a_file_that_was_edited_is_run_as_it_was_read_also_by_those_who_look_at_its_source(tmp_path):
    """torch.jit.script does."""
    path = tmp_path / "mine.py"
    path.write_text("import inspect\ndef text(): return 1, inspect.getsource(text)\n")
    source = read(f"{path}:text")
    path.write_text("# edited\nimport inspect\ndef text(): return 2, inspect.getsource(text)\n")
    for given, number in ((source, 1), (None, 2), (source, 1)):
        found = UserFunction(f"{path}:text", given)()
        assert found == (number, f"def text(): return {number}, inspect.getsource(text)\n")


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_code_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "net.py")
    assert "names a file and no function" in str(without_function("--model", str(tmp_path / "net.py")))


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
