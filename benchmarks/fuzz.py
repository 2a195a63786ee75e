"""Feeds the command with odd and damaged input, and counts what must not happen: tracebacks, hangs, wrong exit codes,
more than 1 GiB of memory, anything left behind or changed outside.

    python benchmarks/fuzz.py --inputs 20000                    # a new seed each time, which is printed
    python benchmarks/fuzz.py --inputs 500 --kinds npy,rundir --seed 7
    python benchmarks/fuzz.py --replay npy:123456               # one input again, with what it printed

The one idea: each input knows which exit codes are right, and runs in a process and a sandbox of its own
(`fuzz_worker.py`); `fuzz_inputs.py` lists the kinds. Exit code 1: there were findings.

Limits: an input is decided by its number and by a template run that is made anew each time; times in its files differ,
so a bit may fall elsewhere when it is repeated. --keep keeps the files of each finding.
"""

import argparse
import gc
import importlib
import pkgutil
import re
import resource
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz_inputs import KINDS, shares
from fuzz_runs import make_template
from fuzz_sandbox import Finding, Sandbox
from fuzz_worker import HEADINGS, Input, Limits, adopt_orphans, run_input

FRESH = 0.01
"""The share of command lines that run in a new interpreter."""
CHUNK = 4
HEAVY = ("torch", "mpi4py", "accelerate")
"""Packages that few inputs need, and that every fork would carry along."""


class Found(NamedTuple):
    """A finding, and the input that led to it."""

    kind: str
    seed: int
    about: str
    finding: Finding
    whole: bool = False
    """Whether the template has all studies."""

    @property
    def signature(self) -> tuple[str, str, str]:
        """Findings of one cause mostly have one."""
        place, _, rest = self.finding.line.partition(" ")
        line = re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S*|0x\w+|\d[\d.,]*|a{9,}", "#", rest)
        return self.kind, self.finding.heading, f"{place} {line}"[:90]

    def __str__(self) -> str:
        more = " --all-studies" if self.whole and self.kind in ("studies", "locale") else ""
        again = f"python benchmarks/fuzz.py --replay {self.kind}:{self.seed}{more}"
        return f"{self.finding.heading}: {self.finding.line}\n    {self.about}\n    {again}"


def import_unisono() -> None:
    """Everything but what imports torch and the like, so that a fork has little left to do."""
    import unisono

    sys.modules.update(dict.fromkeys(HEAVY))  # whoever asks for one of them is told that there is none
    for module in pkgutil.walk_packages(unisono.__path__, "unisono.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in HEAVY:
        del sys.modules[name]
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg
    import matplotlib.pyplot  # noqa: F401

    sys.dont_write_bytecode = True
    gc.collect()
    gc.freeze()


def draw_input(kind: str, seed: int, sandbox: Sandbox) -> Input:
    random = Random(f"{kind}:{seed}")
    given = KINDS[kind].make(random, sandbox)
    words_fit = all("\0" not in word and len(word) < 100_000 for word in given.argv)
    fresh = given.fresh or (given.call is None and random.random() < FRESH)
    return replace(given, fresh=fresh and words_fit)


def try_inputs(
    drawn: list[tuple[str, int]], template: Path, limits: Limits, keep: Path | None
) -> tuple[list[Found], Counter[str]]:
    """In a worker: what was found, and how many seconds each kind took."""
    adopt_orphans()
    found, took = [], Counter[str]()
    for kind, seed in drawn:
        begun = time.monotonic()
        root = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=template))
        sandbox = Sandbox(root, template).make()
        given = draw_input(kind, seed, sandbox)
        findings = run_input(given, sandbox, limits)
        found += [Found(kind, seed, given.about, each, (template / "scale").is_dir()) for each in findings]
        if findings and keep is not None:
            root.rename(keep / f"{kind}-{seed}")
        else:
            shutil.rmtree(root, ignore_errors=True)
        took[kind] += time.monotonic() - begun  # type: ignore[assignment]
    return found, took


def results_of(
    drawn: list[tuple[str, int]], template: Path, limits: Limits, keep: Path | None, jobs: int
) -> Iterator[tuple[int, list[Found], Counter[str]]]:
    """How many inputs, what was found, and seconds of each kind, as they come."""
    chunks = [drawn[start : start + CHUNK] for start in range(0, len(drawn), CHUNK)][::-1]
    running: dict[Future[tuple[list[Found], Counter[str]]], int] = {}
    # Ctrl-C reaches the workers, too: this process alone decides what it means.
    pool = ProcessPoolExecutor(jobs, get_context("fork"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        while chunks or running:
            while chunks and len(running) < 2 * jobs:
                chunk = chunks.pop()
                running[pool.submit(try_inputs, chunk, template, limits, keep)] = len(chunk)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), *future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def show(found: list[Found], counts: dict[str, int], took: Counter[str], seed: int, took_s: float) -> bool:
    """The findings, each cause once, and the table; whether there are none."""
    causes: dict[tuple[str, str, str], list[Found]] = {}
    for each in found:
        causes.setdefault(each.signature, []).append(each)
    for (kind, _, _), same in sorted(causes.items(), key=lambda cause: -len(cause[1])):
        print(f"{len(same)} x {kind}: {printable(str(same[0]))}")
    print(f"\n{'kind':<12}{'inputs':>7}{'ms each':>8}  {'  '.join(HEADINGS)}")
    for kind, count in [*counts.items(), ("all", sum(counts.values()))]:
        seen = Counter(each.finding.heading for each in found if kind in (each.kind, "all"))
        cells = "  ".join(f"{seen[heading] or '-':>{len(heading)}}" for heading in HEADINGS)
        print(f"{kind:<12}{count:>7}{1000 * (took[kind] if kind in took else took.total()) / count:>8.0f}  {cells}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = f"{took_s:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time"
    print(f"seed {seed}; {times}; {len(found)} findings, {len(causes)} causes")
    return not found


def printable(text: str) -> str:
    """What was found may hold anything: a terminal must not obey it."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return re.sub(r"[^\n -~]", lambda found: f"\\x{ord(found[0]):02x}", plain)


def replay(text: str, template: Path, limits: Limits, keep: Path | None) -> bool:
    """One input, with all that there is to say of it."""
    kind, _, number = text.partition(":")
    sandbox = Sandbox((keep or template) / f"replay-{kind}-{number}", template).make()
    given = draw_input(kind, int(number), sandbox)
    adopt_orphans()
    findings = run_input(given, sandbox, limits)
    print(printable(f"unisono {' '.join(map(repr, given.argv))}\n{given.about}"))
    for name in ("stdout", "stderr"):
        print(f"--- {name}\n{printable((sandbox.root / name).read_text(errors='replace')[-6000:])}")
    for finding in findings:
        print(printable(f"FOUND {finding.heading}: {finding.line}"))
    return not findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=-1, help="decides the inputs (default: chosen now, and printed)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--jobs", type=int, default=2, help="inputs at a time (default: 2)")
    parser.add_argument("--deadline", type=float, default=Limits.seconds, help="seconds after which an input hangs")
    parser.add_argument("--replay", metavar="KIND:NUMBER", help="one input again")
    parser.add_argument("--all-studies", action="store_true", help="also studies that take seconds to make")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files of findings")
    options = parser.parse_args()
    names = options.kinds.split(",")
    if unknown := set(names) - set(KINDS):
        parser.error(f"--kinds: there is no {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    seed = options.seed if options.seed >= 0 else secrets.randbelow(2**31)
    counts = shares(options.inputs, names)
    random = Random(seed)
    drawn = [(name, random.getrandbits(40)) for name, count in counts.items() for _ in range(count)]
    random.shuffle(drawn)
    limits = replace(Limits(), seconds=options.deadline)
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unisono-fuzz-", ignore_cleanup_errors=True) as made:
        import_unisono()
        adopt_orphans()
        make_template(Path(made), whole=options.all_studies or options.inputs >= 2000)
        if options.replay:
            sys.exit(0 if replay(options.replay, Path(made), limits, options.keep) else 1)
        found: list[Found] = []
        took, done = Counter[str](), 0
        with suppress(KeyboardInterrupt):  # then what was found so far is shown
            for count, more, spent in results_of(drawn, Path(made), limits, options.keep, max(1, options.jobs)):
                found += more
                took += spent
                done += count
                if done // 500 > (done - count) // 500:
                    print(f"{done} done, {len(found)} findings, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    sys.exit(0 if show(found, counts, took, seed, time.monotonic() - begun) else 1)


if __name__ == "__main__":
    main()
