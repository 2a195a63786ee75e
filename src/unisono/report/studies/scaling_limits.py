"""What limits scaling, in words: where the time of the largest world goes that a perfect one would not need.

    for line in words_of(rows): print(line)

The one idea: on n ranks a perfect run would take 1/n of the time of one in each of its parts (computing, data, waiting,
updating). What each part takes beyond that is what was lost there; the largest loss is the limit, and it has a known
cause and a known cure. Waiting has no ideal share: all of it is lost.

Reads rows of `report/studies/scale.py`, and nothing else. Limits: one cause is named, the largest.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite

from unisono.report.studies.background_load import load_line
from unisono.report.studies.cell_rows import TIMES, failed_runs_line, short_line
from unisono.report.studies.scale import baseline_of, bits_line
from unisono.study.statistics import Law, amdahl, gustafson
from unisono.study.tables import NOT_YET, Row

KNEE = 0.5
"""More ranks that bring less than this share of what they should are not worth it."""
GOOD = 0.9
FELT = 0.005
"""A fall of accuracy that is worth a word."""
CAUSES = {
    "compute_s": "computing: each rank computes slower than a lone one, for ranks share memory bandwidth, caches and "
    "clock speed, or a shard's fixed cost is felt; larger batches or fewer shards help",
    "data_s": "fetching samples, which does not get faster with ranks; larger batches help",
    "wait_s": "waiting: ranks arrive at different times; equal work for each, and nothing else on the machine, help",
    "update_s": "updating the parameters, which moves the same bytes however many ranks share it; larger batches help",
}


def words_of(rows: Sequence[Row]) -> list[str]:
    """The laws, the knee, the limit, whether the bits agree, whether runs are too short or met others; a line each."""
    done = [row for row in rows if not row.get("reason")]
    base = baseline_of(done)
    failures = [f"{row['grid']}: {row['reason']}" for row in rows if row.get("reason")]
    failures += [line for row in rows if (line := failed_runs_line(row, row["grid"]))]
    others = load_line(rows, lambda row: str(row["grid"]))
    if base is None or len({row["world"] for row in done}) < 2:
        return [line for line in [*failures, _too_few(rows), others] if line]
    lines = [*law_lines(done), knee_line(done), limit_line(base, largest_of(done)), accuracy_line(base, done)]
    lines += [bits_line(rows), short_line(rows, "grid"), others, *failures]
    return [line for line in lines if line]


def _too_few(rows: Sequence[Row]) -> str:
    """What to say where one number of ranks, or none, was measured."""
    if len({row["world"] for row in rows}) < 2:
        return "One number of ranks is no scaling: give a --grid with several."
    if any(row.get("reason") == NOT_YET for row in rows) or all(row.get("reason") for row in rows):
        return ""
    return "One number of ranks was measured: nothing can be said of scaling."


def crowded(row: Row) -> bool:
    """Whether there are more ranks than cores for them."""
    return bool(row["ranks"] * row["threads"] > row["cores"])


def laws_of(rows: Sequence[Row]) -> list[Law]:
    """Fitted to the single runs of worlds that have a core for each rank; weak scaling has no Amdahl. None where more
    ranks were no faster: a serial share above 100 % would be no share."""
    done = _roomy(rows)
    points = [(row["world"], rate) for row in done for rate in row["rates"].values()]
    if not points:
        return []
    ranks, rates = [point[0] for point in points], [point[1] for point in points]
    found = [gustafson(ranks, rates)] if done[0]["weak"] else [amdahl(ranks, rates), gustafson(ranks, rates)]
    laws = [law for law in found if law is not None]
    return [] if any(law.serial >= 1 for law in laws) else laws


def _roomy(rows: Sequence[Row]) -> list[Row]:
    """What was measured with a core for each rank."""
    return [row for row in rows if not row.get("reason") and not crowded(row)]


def law_lines(rows: Sequence[Row]) -> list[str]:
    """What each law says, and what it was made of."""
    lines = []
    for law in laws_of(rows):
        width = f" ± {100 * law.half_width:.1f}" if isfinite(law.half_width) else ""
        told = f"{law.name}: a serial share of {100 * law.serial:.1f}{width} % (95 %)"
        if law.name == "Amdahl":
            told += f"; {_limit_of(law)}"
        told += f"; furthest from a run by {100 * law.error:.0f} %"
        lines.append(told + ("; from two sizes no law can be seen to hold." if law.sizes < 3 else "."))
    if not lines:
        lines.append(_unfitted(_roomy(rows)))
    left_out = [row["grid"] for row in rows if crowded(row)]
    if left_out:
        lines.append(f"Not part of the fits, for they have more ranks than cores: {', '.join(left_out)}.")
    return lines


def _unfitted(roomy: Sequence[Row]) -> str:
    """Why there is no law."""
    if len({row["world"] for row in roomy}) < 2:
        return "No law is fitted: there are not two sizes with a core for each rank."
    first, last = min(roomy, key=lambda row: row["world"]), max(roomy, key=lambda row: row["world"])
    if (gain := last.get("speed_up")) is None or not first.get("speed_up"):
        return "No law is fitted: more ranks were no faster."
    gain /= first["speed_up"]
    told = f"{last['grid']} is {gain:.2f} times as fast as {first['grid']}"
    return f"More ranks were {'slower' if gain < 1 else 'no faster'} here: {told}. No law of scaling is fitted to that."


def _limit_of(law: Law) -> str:
    """What the interval leaves of a limit: its ends, and none if it holds 0, at which there is none."""
    most, least = law.serial - law.half_width, law.serial + law.half_width
    if not most > 0:
        return "no limit can be told, for the interval holds 0: larger worlds or more --repeat would narrow it"
    ends = [replace(law, serial=min(1.0, serial)) for serial in (least, most)]
    times = _span(*(f"{end.limit:.1f}" for end in ends))
    ranks = _span(*(f"{end.ranks_at(0.5):.0f}" for end in ends))
    return f"at most {times} times as fast as one rank, and beyond {ranks} ranks each is worth less than half of one"


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def largest_of(rows: Sequence[Row]) -> Row:
    """The largest world with a core for each rank, or the largest."""
    return max([row for row in rows if not crowded(row)] or rows, key=lambda row: row["world"])


def knee_line(rows: Sequence[Row]) -> str:
    """Where more ranks stop being worth it, if that holds in every round."""
    ordered = sorted((row for row in rows if row.get("speed_up")), key=lambda row: row["world"])
    best: dict[int, Row] = {}
    for row in ordered:
        if row["world"] not in best or row["speed_up"] > best[row["world"]]["speed_up"]:
            best[row["world"]] = row
    steps = list(best.values())
    for before, after in pairwise(steps):
        gain = after["speed_up"] / before["speed_up"] - 1
        ideal = after["world"] / before["world"] - 1
        if gain < KNEE * ideal:
            low, high, first = after["speed_up_low"], after["speed_up_high"], steps[0]["grid"]
            span = f"{low:.2f} to {high:.2f} times as fast as {first}"
            if high / before["speed_up"] - 1 >= KNEE * ideal:
                return f"Knee: perhaps {before['grid']}; the runs of {after['grid']} differ too much to tell ({span})."
            told = f"Knee: {before['grid']}. The step to {after['grid']} makes it {span}, after "
            told += f"{before['speed_up']:.2f} times: {max(0.0, 100 * gain / ideal):.0f} % of what it could bring"
            return told + (", with more ranks than cores." if crowded(after) else ".")
    return f"Knee: none up to {steps[-1]['grid']}; each step brings more than half of what it could."


def accuracy_line(base: Row, rows: Sequence[Row]) -> str:
    """What more ranks cost in accuracy, if that is more than chance would make of it."""
    known = [row for row in rows if row.get("test_accuracy") is not None and row is not base]
    if not known or base.get("test_accuracy") is None:
        return ""
    worst = min(known, key=lambda row: row["test_accuracy"])
    if base["test_accuracy"] - worst["test_accuracy"] < FELT:
        return ""
    told = f"Accuracy falls from {100 * base['test_accuracy']:.2f} % on {base['grid']} to "
    told += f"{100 * worst['test_accuracy']:.2f} % on {worst['grid']}"
    if worst["weak"]:
        told += f", where a batch is {worst['global_batch']:.0f}: --scale-lr linear --warmup-epochs 1 may help"
    return told + "."


def limit_line(base: Row, row: Row) -> str:
    """The largest loss on the way from `base` to `row`, in a sentence."""
    if row["world"] == base["world"] or row.get("efficiency") is None:
        return ""
    if row["efficiency"] >= GOOD:
        return f"Little is lost on {row['grid']}: each rank is worth {100 * row['efficiency']:.0f} % of a lone one."
    share = base["world"] / row["world"]  # also in weak scaling, where as many samples are fewer steps
    lost = {name: row[name] - (0.0 if name == "wait_s" else share * base[name]) for name in TIMES}
    name = max(lost, key=lambda part: lost[part])
    total_s = sum(value for value in lost.values() if value > 0)
    if total_s <= 0:
        return f"{row['grid']} loses {100 * (1 - row['efficiency']):.0f} %, and none of what ranks time shows where."
    return (
        f"What limits {row['grid']} (efficiency {100 * row['efficiency']:.0f} %): {100 * lost[name] / total_s:.0f} % "
        f"of what is lost goes into {CAUSES[name]}."
    )
