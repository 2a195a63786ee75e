import tomllib
from pathlib import Path

import pytest

from unisono.optional_packages import EXTRAS, WITH_TORCH, how_to_install

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def test_those_of_the_project_are_known():
    assert set(EXTRAS) | {"docs", "test"} == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_version_is_pinned_where_torch_comes_along(extra):
    brings = any(package.startswith("torch>") for package in PROJECT["optional-dependencies"][extra])
    assert (extra in WITH_TORCH) == brings
    assert how_to_install(extra) == f"pip install {'-c constraints.txt ' * brings}'.[{extra}]' in unisono's repository"
