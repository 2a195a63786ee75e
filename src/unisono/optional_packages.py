"""Extras: what is installed only if asked for, and the words that say how.

The one idea: every message that misses a package has the same hint, from here.

>>> how_to_install("torch")
"pip install -c constraints.txt '.[torch]' in unisono's repository"

Limits: the names are those of pyproject.toml, which a test compares.
"""

EXTRAS = ("torch", "mpi", "accelerate", "tensorboard", "bf16", "energy", "notebook")
"""Those that a user may want."""
WITH_TORCH = ("torch", "accelerate")


def how_to_install(extra: str) -> str:
    """The command, and where to run it. With torch the version is pinned: newer ones bring gigabytes for GPUs."""
    assert extra in EXTRAS
    pinned = "-c constraints.txt " if extra in WITH_TORCH else ""
    return f"pip install {pinned}'.[{extra}]' in unisono's repository"
