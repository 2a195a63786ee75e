"""The options that all studies have, each defined once: the command line reads names, defaults and help from here."""

from dataclasses import dataclass

from unisono.errors import UserError
from unisono.study.study import DEFAULT_TIMEOUT_S


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """How often, how long, where."""

    repeat: int = 4
    """How often everything is run; the order goes there and back again (ABBA), so that even numbers favour nobody."""

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
