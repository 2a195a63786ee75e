"""torch: its version, its threads, the GPUs that it sees."""

import warnings
from importlib import metadata
from importlib.util import find_spec

from unisono.doctor.finding import Finding
from unisono.user_code.extras import how_to_install

INSTALL = how_to_install("torch")


def probe() -> list[Finding]:
    """Not needed for NumPy networks."""
    if find_spec("torch") is None:
        told = "not installed; NumPy networks (linear, mlp, bn-mlp) do without, all others need it"
        return [Finding("torch", "missing", told, INSTALL)]
    version = metadata.version("torch")
    try:
        import torch
    except Exception as error:  # whatever its import meets is what the user wants to know
        told = f"torch {version} cannot be imported: {type(error).__name__}: {error}"
        return [Finding("torch", "failed", told, INSTALL, {"version": version})]
    facts = {"version": version, "threads": torch.get_num_threads(), "cuda": torch.version.cuda}
    told = f"torch {version}, built for {'CUDA ' + str(torch.version.cuda) if torch.version.cuda else 'processors'}"
    return [Finding("torch", "ok", told, facts=facts), _gpus(torch.version.cuda)]


def _gpus(cuda: str | None) -> Finding:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of drivers that are not there
        names = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    if names:
        told = f"{len(names)}: {', '.join(names)}; for --strategy ddp and accelerate, a rank each"
        return Finding("GPUs", "ok", told, facts={"names": names})
    why = "torch sees none" if cuda else "this torch is built for processors alone"
    return Finding("GPUs", "missing", f"{why}; unisono's promises are about processors, and need none")
