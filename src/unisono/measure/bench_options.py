"""The options of `unisono bench`, each defined once: the command line reads names, defaults and help from here."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What to measure."""

    ranks: str = "2"
    """Numbers of ranks, separated by commas, such as 2,4,8."""

    sizes: str = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
    """Sizes of the arrays in bytes (KiB, MiB), separated by commas."""

    elements: str = ""
    """Lengths of the arrays in elements instead of --sizes, such as 4096,8192,16384."""

    algorithms: str = "all"
    """naive, ring, tree, doubling, halving, native (the transport's own) and arena (in place, in shared memory)."""

    transports: str = "auto"
    """shm, mpi, gloo, separated by commas; auto takes those that are installed."""

    dtype: str = "float32"
    """float32, float64, float16, int32 or int64."""

    op: str = "sum"
    """sum, max, min or prod."""

    seconds: float = 0.2
    """Time to spend on each cell of the table, roughly; at least 5 repetitions are made, at most 20,000."""

    timeout_s: float = 60.0
    """How long a rank waits for another before it gives up."""

    out: str = ""
    """Directory for bench.csv, bench.json and bench.png; made if it is not there. Nothing is written without it."""
