"""`unisono bench`: plan, measure with progress, show, write."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from unisono.errors import UnisonoError, UserError
from unisono.files import expand_user
from unisono.measure.allreduce_bench import BenchOptions
from unisono.safe_print import print

_DEFAULTS = BenchOptions()
FILES = ("bench.csv", "bench.json", "bench.png")


def bench(options: Annotated[BenchOptions, Parameter(name="*")] = _DEFAULTS) -> None:
    """Measure all-reduce: algorithm x size x ranks x transport.

    Each transport is started properly by the command itself: shm by unisono's own launcher, mpi by mpirun, gloo by
    torch.distributed. Every result is checked. The fastest of each size is marked.

    Naive against ring, as a table: unisono bench --algorithms naive,ring --elements 4096,8192,16384 --ranks 2,4,8
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from unisono.environment.os_environ import detect
    from unisono.measure.allreduce_bench import measure, plan
    from unisono.report.studies.bench import tables, verdict, write
    from unisono.report.terminal.console import Console
    from unisono.resources import readable_bytes, usable_cores
    from unisono.study.provenance import write_about
    from unisono.study.study_directory import writing
    from unisono.supervise.signals import as_ctrl_c

    if (size := detect().size) > 1:
        raise UserError(f"bench was started as {size} ranks, and starts its own", hint="run it once: unisono bench")
    worlds = plan(options)
    out = prepare_out(options.out, FILES)
    if out is not None:
        with writing(out, after=""):
            write_about(out, [])  # now: whatever ends it, the directory says what it is
    console, status = Console(), Console(stderr=True)
    ranks, transports = sorted({world.ranks for world in worlds}), dict.fromkeys(world.transport for world in worlds)
    status.print(
        f"unisono bench: {', '.join(transports)} on {', '.join(map(str, ranks))} ranks, {usable_cores()} cores"
    )
    records: list[dict[str, Any]] = []
    total = sum(len(world.lengths) * len(world.algorithms) for world in worlds)
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn())
    with as_ctrl_c():
        try:
            # No refresh thread: this process forks.
            with Progress(*columns, console=status, auto_refresh=False, disable=not status.is_terminal) as progress:
                task = progress.add_task("starting", total=total)
                for record in measure(worlds):
                    records.append(record)
                    told = "{transport} {algorithm}, {ranks} ranks, ".format_map(record) + readable_bytes(
                        record["nbytes"]
                    )
                    progress.update(task, advance=1, description=told, refresh=True)
                    if not status.is_terminal and len(records) % 10 == 0:
                        status.print(f"{len(records)} of {total} cells measured ({told})")
        finally:
            # Also after an error or Ctrl-C or SIGTERM: what was measured is not lost.
            if records:
                console.print(*tables(records), sep="")
                console.print(verdict(records), highlight=False, soft_wrap=True)
                if out is not None:
                    print("Written: " + ", ".join(str(path) for path in write(records, out)))
    if not all(record["correct"] for record in records):
        raise UnisonoError("some results were wrong: see the table")


def prepare_out(out: str, files: Sequence[str]) -> Path | None:
    """The directory for the files, made and tried now: not after minutes of measuring."""
    if not out:
        return None
    path = expand_user(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = [name for name in files if os.path.lexists(path / name)]
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}", hint="give a directory that you may write to") from None
    if taken:
        raise UserError(f"--out {out} holds {', '.join(taken)} already", hint="give another directory, or remove them")
    return path
