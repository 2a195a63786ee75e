"""Lists and sizes on the command line; the options that all studies have, and those of `unisono profile`.

    >>> sizes("1KiB,2MiB", "--sizes")
    [1024, 2097152]

Each function takes the option's name, so its error can name the option. The command line reads names, defaults and help
of options from `StudyOptions` and `ProfileOptions`. Imports nothing heavy.
"""

import re
from dataclasses import dataclass

from unisono.errors import UserError, unknown_name
from unisono.study.study import DEFAULT_TIMEOUT_S

_UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
SORTS = ("self", "total", "average", "memory", "calls", "name")


def words(text: str) -> list[str]:
    """'a, b' -> ['a', 'b']; duplicates are dropped."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def choices(text: str, valid: list[str], what: str) -> list[str]:
    """A comma-separated list of names out of `valid`; 'all' is all of them."""
    chosen = words(text)
    if "all" in chosen:
        return valid
    for name in chosen:
        if name not in valid:
            raise unknown_name(what, name, [*valid, "all"])
    if not chosen:
        raise UserError(f"no {what} given", hint=f"choose from {', '.join(valid)}")
    return chosen


def numbers(text: str, option: str, least: int = 1) -> list[int]:
    """A comma-separated list of whole numbers, each at least `least`."""
    try:
        found = [int(word) for word in words(text)]
    except ValueError:
        raise UserError(f"{option} {text}: not a list of whole numbers", hint=f"for example {option} 2,4,8") from None
    if not found:
        raise UserError(f"{option} is empty", hint=f"for example {option} 2,4,8")
    if min(found) < least:
        raise UserError(f"{option} {text}: each must be {least} or more", hint=f"for example {option} 2,4,8")
    return found


def sizes(text: str, option: str) -> list[int]:
    """A comma-separated list of sizes in bytes: 512, 16KiB, 4M."""
    found = []
    for word in words(text):
        match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", word, re.IGNORECASE)
        if match is None:
            raise UserError(f"{option} {word}: not a size", hint=f"for example {option} 1KiB,64KiB,4MiB")
        found.append(int(match[1]) * _UNITS[match[2].upper()])
    if not found:
        raise UserError(f"{option} is empty", hint=f"for example {option} 1KiB,64KiB,4MiB")
    return list(dict.fromkeys(found))


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """How often runs are repeated, how long they may take, where they are kept."""

    repeat: int = 4
    """How often everything is run; the order goes there and back again (ABBA), so that even numbers favour no cell."""

    warmup: int = 0
    """Rounds before those, which do not count."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    """A run that takes longer is ended, and is a row with that reason."""

    retry: bool = False
    """Run again what failed when this study was carried out before."""

    dry_run: bool = False
    """Show the plan and an estimate of the time, from one epoch; then end. A recipe with code of its own (FILE.py) gets
    no estimate: that would run it."""

    out: str = ""
    """The study's directory; one under studies/ if empty. The same command finds it again, and goes on."""

    def __post_init__(self) -> None:
        if self.repeat < 1:
            raise UserError(f"--repeat is {self.repeat}", hint="give 1 or more")
        if self.warmup < 0:
            raise UserError(f"--warmup is {self.warmup}", hint="give 0 or more")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What to measure, and what to show."""

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
