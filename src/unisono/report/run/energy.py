"""Energy in words: how much, how it is known, and ranks that did nothing. Text only.

    energy_lines({"energy_j": 18700.0, "energy_source": "nvml", "energy_per_sample_j": 0.0623})

The one idea: an estimate is never shown without the word, nor a figure without its source; where there is none, why.
"""

from typing import Any

from unisono.report.run.files import is_number

PREFIXES = ((1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def readable_j(joules: float) -> str:
    """18700 -> '18.7 kJ', 0.000121 -> '121 uJ'."""
    if not joules:
        return "0 J"
    size, prefix = next((entry for entry in PREFIXES if abs(joules) >= entry[0]), PREFIXES[-1])
    value = joules / size
    return f"{value:.0f} {prefix}J" if abs(value) >= 100 else f"{value:.1f} {prefix}J"


def energy_lines(summary: dict[str, Any]) -> list[str]:
    """What a run ends with; nothing where nothing can be said."""
    lines = []
    names = ("energy_j", "energy_per_sample_j", "energy_idle_j")
    joules, per_sample, idle_j = (value if is_number(value := summary.get(name)) else None for name in names)
    if joules is not None:
        each = f", {readable_j(per_sample)} a sample" if per_sample else ""
        rest = f", of which {readable_j(idle_j)} would have been used by an idle machine" if idle_j is not None else ""
        note = summary.get("energy_note") or ""
        source = summary.get("energy_source")
        how = f"{source}: {note or 'whole nodes'}"  # a note says what is missing
        lines.append(f"Energy: {readable_j(joules)}{each}{rest} ({how}).")
    elif why := summary.get("energy_note"):
        lines.append(f"Energy: not known ({why}).")
    idle = summary.get("idle_ranks")
    if isinstance(idle, list) and idle:
        who = f"Rank {idle[0]}" if len(idle) == 1 else f"Ranks {', '.join(map(str, idle))}"
        lines.append(f"{who} did nothing: never as much as 5 % of a core was used.")
    return lines
