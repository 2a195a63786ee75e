"""Fingerprint: what decides the bits of a run besides the recipe: processor, BLAS, threads, versions; and its
libraries.

The one idea: equal fingerprints, equal bits. Where they differ a run continues, and `differences` says in plain words
why bits may differ from then on. It holds JSON only, so that a snapshot can keep it. Which libraries a recipe needs is
known from the recipe alone; nothing is imported for it.

    python -c "from unisono.training.fingerprint import fingerprint; print(fingerprint())"
    libraries_of([Recipe.from_options(strategy="accelerate")])  # ["torch", "accelerate"]

Take it where training runs: with the recipe's threads set, and torch imported if the model is torch's.

Limits: libraries choose kernels by more than they tell (cache sizes, environment variables), so the name of the
processor counts, too. On processors without flags the name is all there is.
"""

import platform
import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from unisono.errors import UserError
from unisono.models.engines import choose_engine
from unisono.recipe import Recipe
from unisono.resources import machine
from unisono.strategies.registry import find

FLAGS = (
    "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512cd", "avx512bw", "avx512dq",
    "avx512vl", "avx512ifma", "avx512vbmi", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "amx_int8", "asimd", "asimdhp", "asimddp", "asimdfhm", "sve", "sve2", "bf16", "i8mm", "vx", "vxe", "altivec",
)  # fmt: skip
"""Instructions by which BLAS, NumPy and torch choose their kernels."""

_LABELS = {
    "machine": "the kind of machine",
    "cpu": "the processor",
    "blas": "BLAS",
    "threads": "threads",
    "libc": "the C library",
    "numpy": "NumPy",
    "torch": "torch",
}


def fingerprint(threads: int | None = None) -> dict[str, Any]:
    """Of this process, now; or as it would be with so many threads of BLAS."""
    with threadpool_limits(threads, user_api="blas") if threads else nullcontext():
        libraries = threadpool_info()
    flags = cpu_flags()
    torch = sys.modules.get("torch")  # not imported here: it is heavy, and without it nothing depends on it
    return {
        "machine": platform.machine(),
        "cpu": machine()["cpu"],
        "cpu_flags": [flag for flag in FLAGS if flag in flags],
        "blas": sorted({_build(entry) for entry in libraries if entry["user_api"] == "blas"}),
        "threads": sorted(
            {f"{entry['prefix']} {entry['num_threads']}" for entry in libraries}
            | ({f"torch {torch.get_num_threads()}"} if torch else set())
        ),
        "libc": " ".join(platform.libc_ver()),  # NumPy takes some functions from there
        "numpy": np.__version__,
        "torch": str(torch.__version__) if torch else None,
    }


def differences(saved: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """One line for each thing that is not as it was; empty if the bits go on as they were."""
    lines = [
        f"{_LABELS.get(key, _words(key))}: {_words(saved.get(key))} then, {_words(here.get(key))} now"
        for key in [*here, *(key for key in saved if key not in here)]
        if key != "cpu_flags" and saved.get(key) != here.get(key)
    ]
    then, now = (
        set(flags) if isinstance(flags := side.get("cpu_flags"), list) and all(type(x) is str for x in flags) else set()
        for side in (saved, here)
    )
    if then - now:
        lines.append(f"this processor lacks instructions that were there: {_words(sorted(then - now))}")
    if now - then:
        lines.append(f"this processor has instructions that were not there: {_words(sorted(now - then))}")
    return lines


def _build(entry: dict[str, Any]) -> str:
    """'openblas 0.3.31 SkylakeX': the library and the kernels that it chose."""
    return " ".join(str(entry[key]) for key in ("internal_api", "version", "architecture") if entry.get(key))


def _words(value: Any) -> str:
    """For people; what comes from a file must not write to the terminal."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    if isinstance(value, dict):
        return ", ".join(f"{_words(key)} {_words(entry)}" for key, entry in value.items())
    return text if (text := str(value)).isprintable() else ascii(text)


def cpu_flags() -> set[str]:
    """The instructions that this processor has, by the kernel's names; empty where it does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    # "flags" on x86, "Features" on ARM; the first core stands for all.
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith(("flags", "Features"))), set())


def libraries_of(recipes: Iterable[Recipe]) -> list[str]:
    """Names of packages, each once."""
    found: dict[str, None] = {}
    for recipe in recipes:
        found |= dict.fromkeys(spec.packages if (spec := find(recipe.strategy.name)) else ())
        with suppress(UserError):
            if (
                recipe.model.sync_batchnorm
                or choose_engine(recipe.model.engine, recipe.model.name, recipe.model.precision) == "torch"
            ):
                found |= {"torch": None}
    return list(found)
