"""The options of `unisono profile` beside those of a recipe, each defined once: the command line reads them here."""

from dataclasses import dataclass

SORTS = ("self", "total", "average", "memory", "calls", "name")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What to look at."""

    batches: int = 100
    """Batches that are watched; about as many again are not, to measure what looking costs."""

    activations: str = ""
    """Compare these activations instead: relu,tanh,sigmoid,gelu, or all."""

    sort: str = "self"
    """Rows by self, total, average, memory, calls (largest first) or name."""

    shapes: bool = False
    """Keep operators with inputs of other shapes apart."""

    memory: bool = True
    """Show memory, too."""

    top: int = 12
    """How many operators to show; the files have all."""
