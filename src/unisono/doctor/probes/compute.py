"""What computes: the processor and its instructions, NumPy's BLAS and its threads, torch and the GPUs that it sees.

python -m unisono.doctor.probe_entry arithmetic
python -m unisono.doctor.probe_entry torch
"""

import warnings
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from threadpoolctl import threadpool_info

from unisono.doctor.finding import Finding
from unisono.environment.os_environ import THREADS, launcher_text
from unisono.optional_packages import how_to_install
from unisono.training.bits_and_speed_trials import INSTRUCTIONS
from unisono.training.fingerprint import FLAGS, cpu_flags

WIDE = {"avx512f": "AVX-512", "avx2": "AVX2", "sve2": "SVE2", "sve": "SVE", "asimd": "NEON"}
"""The widest that the processor has decides how fast it multiplies."""
TORCH_INSTALL = how_to_install("torch")


def probe_processor() -> list[Finding]:
    """The processor, what its instructions mean for 16 bits, and the libraries that use it."""
    from unisono.resources import machine

    flags = cpu_flags()
    name = str(machine()["cpu"])
    if not flags:
        told = f"{name}: what it can do is not known, for /proc/cpuinfo does not tell"
        here = [Finding("processor", "warning", told, "mount /proc", {"name": name, "flags": []})]
    else:
        here = [processor(name, flags), *(sixteen(kind, flags) for kind in INSTRUCTIONS)]
    return [*here, blas(), threads(launcher_text(*THREADS))]


def processor(name: str, flags: set[str]) -> Finding:
    """Its name and its widest instructions."""
    facts = {"name": name, "flags": [flag for flag in FLAGS if flag in flags]}
    widest = next((words for flag, words in WIDE.items() if flag in flags), "")
    if not widest:
        told = f"{name}: no AVX2 or the like is listed; matrix products will be slow"
        return Finding("processor", "warning", told, "in a virtual machine, pass the host's processor on", facts)
    return Finding("processor", "ok", f"{name}, {widest}", facts=facts)


def sixteen(kind: str, flags: set[str]) -> Finding:
    """Whether --precision KIND has instructions of its own."""
    able = sorted(flags & set(INSTRUCTIONS[kind]))
    if able:
        return Finding(kind, "ok", f"has instructions of its own ({', '.join(able)})", facts={"flags": able})
    told = f"no instructions for it: --precision {kind} works, by way of fp32, and is mostly slower than that"
    return Finding(kind, "missing", told, "use --precision fp32 here", {"flags": []})


def blas() -> Finding:
    """NumPy's."""
    import numpy as np

    libraries: list[dict[str, Any]] = [entry for entry in threadpool_info() if entry["user_api"] == "blas"]
    facts = {"numpy": np.__version__, "libraries": [{k: str(v) for k, v in entry.items()} for entry in libraries]}
    if not libraries:
        told = f"NumPy {np.__version__} shows no BLAS: matrix products may be slow, and threads cannot be set"
        return Finding("BLAS", "warning", told, "pip install --force-reinstall numpy brings one with OpenBLAS", facts)
    named = ", ".join(
        " ".join(str(entry[key]) for key in ("internal_api", "version", "architecture") if entry.get(key))
        for entry in libraries
    )
    return Finding("BLAS", "ok", f"NumPy {np.__version__} with {named}", facts=facts)


def threads(given: dict[str, str]) -> Finding:
    """Variables that the user has set; ranks of unisono have --threads each, whatever they say."""
    told = ", ".join(f"{name}={value}" for name, value in given.items()) or "no variable limits them"
    return Finding("threads", "ok", f"{told}; ranks of unisono have --threads of their own (1)", facts=dict(given))


def probe_torch() -> list[Finding]:
    """Not needed for NumPy networks."""
    if find_spec("torch") is None:
        told = "not installed; NumPy networks (linear, mlp, bn-mlp) do without, all others need it"
        return [Finding("torch", "missing", told, TORCH_INSTALL)]
    version = metadata.version("torch")
    try:
        import torch
    except Exception as error:  # the user wants to see any error of the import
        told = f"torch {version} cannot be imported: {type(error).__name__}: {error}"
        return [Finding("torch", "failed", told, TORCH_INSTALL, {"version": version})]
    facts = {"version": version, "threads": torch.get_num_threads(), "cuda": torch.version.cuda}
    told = f"torch {version}, built for {'CUDA ' + str(torch.version.cuda) if torch.version.cuda else 'processors'}"
    return [Finding("torch", "ok", told, facts=facts), _gpus(torch.version.cuda)]


def _gpus(cuda: str | None) -> Finding:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing drivers
        names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    if names:
        told = f"{len(names)}: {', '.join(names)}; for --strategy ddp and accelerate, a rank each"
        return Finding("GPUs", "ok", told, facts={"names": names})
    why = "torch sees none" if cuda else "this torch is built for processors alone"
    return Finding("GPUs", "missing", f"{why}; unisono's promises are about processors, and need none")
