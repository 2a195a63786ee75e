"""Compression: what numbers are rounded to on their way between ranks, by name.

    wire_type("fp32"), wire_type("bf16")                 # None: as they are; the dtype

bfloat16 has the range of float32 and 8 bits of precision, in half the bytes. What is rounded must be small beside what
it is added to: gradients and movements are, parameters are not.

Limits: NumPy knows bfloat16 by the package ml_dtypes.
"""

from importlib.util import find_spec

import numpy as np

from unisono.errors import UserError, unknown_name
from unisono.optional_packages import how_to_install
from unisono.recipe import Recipe

WIRES = ("fp32", "bf16")


def wire_type(name: str) -> np.dtype | None:
    """What arrays of float32 are sent as; None: as they are."""
    if name == "fp32":
        return None
    from ml_dtypes import bfloat16

    dtype: np.dtype = np.dtype(bfloat16)
    return dtype


def check_wire(recipe: Recipe, *, supported: bool, strategy: str) -> None:
    """A `UserError` for what cannot be. supported: by the strategy, which that option chose."""
    if recipe.strategy.wire not in WIRES:
        raise unknown_name("--wire", recipe.strategy.wire, WIRES)
    if recipe.strategy.wire == "fp32":
        return
    if not supported:
        raise UserError(
            f"--wire {recipe.strategy.wire} with {strategy}: only sync between nodes, and local, round what they "
            "exchange",
            hint=f"leave --wire out, or {strategy}",
        )
    if find_spec("ml_dtypes") is None:
        raise UserError(
            f"--wire {recipe.strategy.wire} needs the package ml_dtypes, which is not installed",
            hint=how_to_install("bf16"),
        )


def wire_notes(recipe: Recipe, nodes: int) -> list[str]:
    """What a user should know who rounds what nodes exchange."""
    if recipe.strategy.wire == "fp32":
        return []
    if nodes == 1:
        return [f"--wire {recipe.strategy.wire} has no effect: all ranks are on one node, where nothing is sent."]
    return [
        f"--wire {recipe.strategy.wire}: sums are rounded between the {nodes} nodes: other layouts give other bits."
    ]
