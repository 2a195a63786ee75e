"""Which files belong to a file of the user's, and that a change in any of them changes its hash."""

import hashlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from unisono.user_code.source_files import files_of, sha256_of

FILES = {
    "mine.py": "import layers, numpy\nfrom parts import attention\nimport space.deep.inner as inner\n",
    "layers.py": "def late():\n    from sums import add\n",
    "sums.py": "import mine\n",
    "parts/__init__.py": "",
    "parts/attention.py": "from . import heads\nfrom .heads import one\nfrom ..above import x\nfrom .. import layers\n",
    "parts/heads.py": "from .attention import *\n",
    "parts/unused.py": "",
    "space/deep/inner.py": "import sums\n",
    "above.py": "",
    "others.py": "",
}


@pytest.fixture
def code(tmp_path) -> Path:
    """A file with what it imports, and files that it does not import."""
    for name, text in FILES.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    return tmp_path / "code" / "mine.py"


def names(file: Path) -> list[str]:
    return [str(found.relative_to(file.parent)) for found in files_of(file)]


def test_what_is_imported_from_beside_belongs_to_it_however_deep(code):
    helpers = ["above.py", "layers.py", "parts/__init__.py", "parts/attention.py", "parts/heads.py"]
    assert names(code) == ["mine.py", *helpers, "space/deep/inner.py", "sums.py"]


@pytest.mark.parametrize("name", list(FILES))
def test_a_change_changes_the_hash_if_the_file_is_imported(code, name):
    before = sha256_of(code)
    (code.parent / name).write_text(FILES[name] + "# edited\n")
    assert (sha256_of(code) != before) == (name not in ("others.py", "parts/unused.py"))


def test_the_same_code_elsewhere_has_the_same_hash(code, tmp_path):
    before = sha256_of(code)
    moved = code.parent.rename(tmp_path / "elsewhere")
    assert sha256_of(moved / "mine.py") == before


def test_a_file_alone_has_the_hash_of_its_contents(tmp_path):
    alone = tmp_path / "mine.py"
    alone.write_text("import numpy, torch.nn\nfrom . import nothing\nfrom ... import more\n")
    assert files_of(alone) == [alone]
    assert sha256_of(alone) == hashlib.sha256(alone.read_bytes()).hexdigest()


def test_a_link_imports_from_where_it_leads(code, tmp_path):
    link = tmp_path / "link.py"
    link.symlink_to(code)
    assert [found.name for found in files_of(link)][1:3] == ["above.py", "layers.py"]
    assert sha256_of(link) == sha256_of(code)


NO_PYTHON = {
    "broken": "def (:\n",
    "RecursionError": f"x = 1{'+1' * 100_000}\n",
    "MemoryError": f"x = {'-' * 100_000}1\n",
}


@pytest.mark.parametrize("text", NO_PYTHON.values(), ids=NO_PYTHON)
def test_what_is_no_python_or_nested_too_deeply_to_be_read_imports_nothing(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(f"import layers\n{text}")
    (tmp_path / "layers.py").write_text("")
    assert files_of(path) == [path]


def test_a_compiled_module_that_is_imported_instead_of_the_source_belongs_to_it(code):
    before, suffix = sha256_of(code), EXTENSION_SUFFIXES[0]
    (code.parent / f"layers{suffix}").write_bytes(b"\x7fELF\0")
    (code.parent / f"others{suffix}").write_bytes(b"\x7fELF\0")
    (code.parent / f"parts/heads{EXTENSION_SUFFIXES[-1]}").write_bytes(b"\x7fELF\0")
    found = names(code)
    assert {f"layers{suffix}", f"parts/heads{EXTENSION_SUFFIXES[-1]}"} < set(found)
    assert not {"layers.py", "parts/heads.py", f"others{suffix}"} & set(found)
    assert sha256_of(code) != before
