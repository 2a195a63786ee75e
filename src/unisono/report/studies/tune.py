"""What `unisono tune` shows: a row for every setting that was tried, and what was found, in words.

    rows = rows_of(records); table(rows).shown(rows); words_of(rows, "throughput", complete=True)

Reads records (see `measure/tune/search.py`) and nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unisono.report.run.outcome_and_advice import plural, readable_j, readable_s
from unisono.report.studies.background_load import background_load_of, load_columns, load_line
from unisono.resources import readable_bytes
from unisono.study.tables import REASON, Column, Table

Row = dict[str, Any]
LABELS = ("ranks", "threads", "shards", "batch_size")


def rows_of(records: Sequence[dict[str, Any]]) -> list[Row]:
    """A row a setting, the best of its trials; in the order in which they were tried first."""
    rows: dict[str, Row] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for record in records:
        row = rows.setdefault(
            record["digest"], {"digest": record["digest"], **record["labels"], "trials": 0, REASON: ""}
        )
        if record["what"] == "training":
            row["train_s"] = record["train_s"]
        elif record["status"] == "finished":
            row["trials"] += 1
            row["shards"] = record["shards"]
            row["batch_size"] = record["global_batch"]
            row["memory_bytes"] = record["memory_bytes"]
            row["energy_source"] = record["energy_source"]
            row["samples_per_s"] = max(row.get("samples_per_s", 0.0), record["samples_per_s"])
            each = [value for value in (row.get("joules_per_sample"), record["joules_per_sample"]) if value is not None]
            row["joules_per_sample"] = min(each, default=None)
        runs.setdefault(record["digest"], []).append(record)
        # One of each kind, the newest: what failed once may have been tried again.
        reasons.setdefault(record["digest"], {})[record["what"]] = record["reason"]
        row[REASON] = next(filter(None, reasons[record["digest"]].values()), "")
    return [row | background_load_of(runs[digest]) for digest, row in rows.items()]


def table(rows: Sequence[Row], best: str) -> Table:
    """best: the digest of what was found."""
    columns = [Column("mark", "", left=True), *(Column(name, name.replace("_", " ")) for name in LABELS)]
    columns += [
        Column("samples_per_s", "samples/s", lambda value: f"{value:,.0f}"),
        Column("joules_per_sample", "J a sample", readable_j),
        Column("memory_bytes", "memory", readable_bytes),
    ]
    if any("train_s" in row for row in rows):
        columns.append(Column("train_s", "to accuracy", readable_s))
    for row in rows:
        row["mark"] = "*" if row["digest"] == best else ""
    columns += [Column("trials", "trials"), *load_columns(rows), Column(REASON, "reason", left=True)]
    return Table("settings that were tried", columns)


def words_of(rows: Sequence[Row], best: str, objective: str, *, complete: bool) -> list[str]:
    """What was found, against the worst; other programs that were met; why others could not be tried.

    Of one setting alone, that nothing was compared; if time ran out before all were tried, that, before anything else.
    """
    found = next((row for row in rows if row["digest"] == best), None)
    rest = [told] if (told := load_line(rows, _workers)) else []
    rest += [f"{_workers(row)}: {row[REASON]}" for row in rows if row[REASON]]
    if found is None:
        return rest
    what = f"{_workers(found)}, {plural(found['shards'], 'shard')}, batch {found['batch_size']}"
    soonest = found.get("train_s") is not None
    candidates = max(len(rows), _candidates(rows))
    short = not complete and len(rows) < candidates
    best_of = f"the best{' of these' if short else ''} for {objective}"
    why = f"the soonest at the accuracy, in {readable_s(found['train_s'])}" if soonest else best_of
    speed = f"{found['samples_per_s']:,.0f} samples/s"
    words = [f"* {what}: {speed}, {why}."]
    others = [row["samples_per_s"] for row in rows if row.get("samples_per_s")]
    if len(others) == 1:
        words = [f"Nothing was compared: {what} is the only setting that was measured, at {speed}."]
        words[0] += f" It reached the accuracy in {readable_s(found['train_s'])}." if soonest else ""
        words[0] += " Several --ranks, --threads, --shards or --batch-sizes make a choice." if candidates == 1 else ""
    if objective == "throughput" and not soonest and len(others) > 1:
        words[0] += f" The slowest has {min(others):,.0f}."
    if any("train_s" in row for row in rows) and found.get("train_s") is None:
        words.append("None was seen to reach the accuracy (give more --seconds, or --epochs): it was not looked at.")
    if objective == "energy" and found.get("joules_per_sample"):
        words.append(f"Energy: {readable_j(found['joules_per_sample'])} a sample ({found['energy_source']}).")
    if short:
        were = "was" if len(rows) == 1 else "were"
        told = f"Time ran out (--seconds): {len(rows)} of {candidates} settings {were} tried."
        words.insert(0, f"{told} More --seconds go on from here.")
    elif not complete:
        words.append("There was no time to try everything as often as planned (--seconds).")
    return words + rest


def _candidates(rows: Sequence[Row]) -> int:
    """How many settings there were to try; 0: not known, as in records of earlier versions."""
    found = rows[0].get("candidates")
    return found if type(found) is int else 0


def _workers(row: Mapping[str, Any]) -> str:
    return f"{plural(row['ranks'], 'rank')} x {plural(row['threads'], 'thread')}"
