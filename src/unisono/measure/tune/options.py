"""The options of `unisono tune` beside those of a recipe, each defined once: the command line reads them here."""

from dataclasses import dataclass

from unisono.errors import UserError, unknown_name

OBJECTIVES = ("throughput", "energy")


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What to try, for what, for how long."""

    objective: str = "throughput"
    """throughput (most samples per second) or energy (fewest joules per sample)."""

    ranks: str = "auto"
    """Numbers of ranks to try, such as 1,2,4; auto: 1, 2, 4 ... and as many as there are cores."""

    threads: str = "auto"
    """Threads of each rank to try; auto: 1, 2, 4 ... as far as ranks x threads do not exceed the cores. They change the
    bits of the result."""

    shards: str = ""
    """Numbers of shards to try, or ranks: a shard a rank. Empty: the recipe's. They change the bits of the result."""

    batch_sizes: str = ""
    """Global batches to try, with the learning rate scaled accordingly; empty: the recipe's. They change the result.
    With --target-accuracy the best setting of each is trained until it reaches that, and the fastest one counts."""

    seconds: float = 150.0
    """When this is over no trial is begun; the best one so far counts."""

    memory: str = ""
    """The most that ranks may take together, such as 4GiB; empty: four fifths of what is free."""

    retry: bool = False
    """Try again what failed when this was tuned before. What failed for want of time or memory is tried again by itself
    once there is more of it (--seconds, --memory)."""

    out: str = ""
    """The study's directory; one under studies/ if empty. The same command finds it again, and goes on."""

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise unknown_name("--objective", self.objective, OBJECTIVES)
        if not 0 < self.seconds < float("inf"):
            raise UserError(f"--seconds is {self.seconds}", hint="give a number above 0")
