"""The suite's own rules: helpers live in `support`, and pytest alone decides what can be imported."""

import re

from support.paths import TESTS

FILES = sorted(TESTS.rglob("*.py"))
NAMES = [str(path.relative_to(TESTS)) for path in FILES]


def test_files_of_tests_hold_tests_and_everything_else_is_in_support():
    others = {
        name for name in NAMES if not name.startswith("support/") and not re.search(r"(test_\w+|conftest).py$", name)
    }
    assert others == set()


def test_no_file_changes_the_path_of_imports():
    """`pythonpath` in pyproject.toml, and `support.paths.IMPORTS` for processes, are the two places."""
    changes = r"sys\.path\.(insert|append|extend)\(|sys\.path(\[.*\])? (\+)?= "
    assert not [name for path, name in zip(FILES, NAMES, strict=True) if re.search(changes, path.read_text())]


def test_support_imports_no_tests():
    imports = r"^\s*(from|import) (test_|\w+\.test_|tests\b)"
    assert not [name for path, name in zip(FILES, NAMES, strict=True) if re.search(imports, path.read_text(), re.M)]
