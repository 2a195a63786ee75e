"""Engines: who computes a network, NumPy or torch, and in which precision; decided before any process starts.

The one idea: `auto` takes NumPy where it can, which is several times faster for small networks, and torch for the rest.

    choose_engine("auto", "mlp:128,64", "fp32"); choose_engine("auto", "cnn:16,32", "fp32")          # numpy; torch

Imports no torch: whether it is installed is only looked up.
"""

from importlib.util import find_spec

from unisono.errors import UserError, unknown_name
from unisono.models.nets import NETWORKS
from unisono.models.torch.nets import NETWORKS as TORCH_NETWORKS
from unisono.optional_packages import how_to_install
from unisono.user_code.function import without_function

ENGINES = ("auto", "numpy", "torch")
PRECISIONS = ("fp32", "bf16", "fp16", "fp8")


def choose_engine(engine: str, spec: str, precision: str) -> str:
    """numpy or torch: the engine that computes the model `spec`. Mistakes are `UserError`s."""
    name = spec.partition(":")[0]
    if engine not in ENGINES:
        raise unknown_name("--engine", engine, ENGINES)
    check_precision(precision)
    if spec.endswith(".py"):
        raise without_function("--model", spec)
    if ".py:" not in spec and name not in TORCH_NETWORKS:
        raise unknown_name("model", name, [*TORCH_NETWORKS, "FILE.py:FUNCTION"])
    able = name in NETWORKS and precision == "fp32"
    if engine == "numpy" and not able:
        what = f"--precision {precision}" if name in NETWORKS else f"--model {spec}"
        raise UserError(f"{what} with --engine numpy, which does not have it", hint="leave --engine out, or use torch")
    if engine == "numpy" or (engine == "auto" and able):
        return "numpy"
    if find_spec("torch") is None:
        why = " with the torch engine" if able else f" with --precision {precision}" if name in NETWORKS else ""
        raise UserError(
            f"--model {spec}{why} needs the package torch, which is not installed", hint=how_to_install("torch")
        )
    return "torch"


def check_precision(name: str) -> None:
    """A `UserError` for one that does not exist, or not on CPUs."""
    if name not in PRECISIONS:
        raise unknown_name("--precision", name, PRECISIONS)
    if name == "fp8":
        raise UserError(
            "--precision fp8: products of 8-bit floats need a GPU of compute capability 8.9 or later (NVIDIA Ada, "
            "Hopper, Blackwell) and a library such as Transformer Engine; CPUs have no such instructions",
            hint="use --precision bf16 on a CPU with AMX or AVX512-BF16, else fp32",
        )
