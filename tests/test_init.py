"""The package itself: what it says on systems other than Linux."""

import sys

import pytest

import unisono


def test_other_systems_are_refused_by_name_where_the_package_is_used(monkeypatch):
    """Not where it is imported, which `import torch` does."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ImportError, match=r"runs on Linux; this is darwin[\s\S]*HINT"):
        unisono.check_platform()
    with pytest.raises(ImportError, match="runs on Linux"):
        unisono.__getattr__("train")
