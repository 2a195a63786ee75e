"""Verdict: how the run ended, what limited it, what to try; of several runs a table, and whether their bits are equal.

The sentences are those that `unisono train` ended with (`report/run/outcome_and_advice.py`). Limits: a run that did not
finish has none.
"""

from collections.abc import Sequence
from typing import Any

from unisono.energy.resource_usage import WORDS
from unisono.report.html.blocks import Block, Section, Table, Text, Tiles
from unisono.report.html.number_text import bytes_of, counted, number_of, percent_of, score_of, seconds_of, status_of
from unisono.report.run.findings import findings_of, masters_of
from unisono.report.run.load import Run
from unisono.report.run.outcome_and_advice import since_resumed

LONGEST = 3000
"""Characters of the error that ended a run."""
HEAD = (
    "run",
    "status",
    "scored on",
    "accuracy",
    "loss",
    "training",
    "in all",
    "samples/s",
    "ranks",
    "memory",
    "weights",
)


def section(runs: Sequence[Run]) -> Section | None:
    """First of all."""
    trained = [run for run in runs if run.trained]
    if not trained:
        return None
    return Section("Verdict", _one(trained[0]) if len(trained) == 1 else _several(trained))


def _one(run: Run) -> list[Block]:
    *said, advice = findings_of(run) or [""]
    blocks: list[Block] = [_ending(run), Tiles(_tiles(run))]
    blocks += [Text(_what(run), "note"), Text(_counted_since(run), "note")]
    in_tiles = 2 if run.summary.get("stopped_early") else 1
    blocks += [Text(line) for line in said[in_tiles:]]
    return [block for block in [*blocks, Text(advice, "advice")] if not isinstance(block, Text) or block.text]


def _what(run: Run) -> str:
    """What was trained, by whom."""
    found = run.recipe | run.summary
    if not {"model", "data", "ranks", "threads", "strategy"} <= found.keys():
        return ""
    way = f"{found['strategy']}, {found.get('allreduce')}"
    if found.get("transport") not in (None, "auto"):  # what "auto" came to is in the summary, when there is one
        way += f" over {found['transport']}"
    who = f"{counted(found['ranks'], 'rank')} x {counted(found['threads'], 'thread')}"
    return f"{found['model']} on {found['data']}; {who}; {way}."


def _counted_since(run: Run) -> str:
    """A summary counts what its own command did; everything else on the page is of the whole run."""
    told = since_resumed(run.summary)
    return f"Time, throughput and energy here are those{told}; charts and tables below show all epochs." if told else ""


def _ending(run: Run) -> Text:
    status, summary = status_of(run), run.summary
    if status == "finished":
        early = summary.get("stopped_early")
        return Text(f"Stopped early after epoch {summary.get('epochs')}: {early}." if early else "", "lead")
    epochs = len(run.numbers("epoch"))
    if run.going_on and not summary:
        wanted = run.recipe.get("epochs")
        known = type(wanted) is int and wanted >= epochs
        done = f"{epochs:,} of {counted(wanted, 'epoch')}" if known else counted(epochs, "epoch")
        return Text(f"The run is going on, with {done} done.", "state")
    reached = "1 epoch was recorded" if epochs == 1 else f"{epochs:,} epochs were recorded"
    error = _shortened(str(summary.get("error") or "").rstrip())
    told = f".\n{error}" if "\n" in error else f"; {error}" if error else ""
    return Text(f"The run is {status}: {reached}{told}", "warning")


def _shortened(error: str) -> str:
    """Who failed stands at the beginning of a traceback, why at its end; all of it is among the logs."""
    return error if len(error) <= LONGEST else f"{error[: LONGEST // 4]}\n...\n{error[-LONGEST // 2 :]}"


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    summary, (part, accuracy, loss) = run.summary, score_of(run)
    tiles = [(f"{part} accuracy", percent_of(accuracy), f"{part} loss {number_of(loss)}")]
    if accuracy is None:
        tiles = [(f"{part} loss", number_of(loss), "")]
    ranks = summary.get("ranks", run.size or run.recipe.get("ranks"))
    masters = masters_of(run)
    cut = counted(masters, "master") if masters else counted(summary.get("shards", run.recipe.get("shards")), "shard")
    tiles += [
        ("training", seconds_of(summary.get("train_s")), f"{seconds_of(summary.get('wall_s'))} in all"),
        ("throughput", number_of(summary.get("samples_per_s")), "samples/s"),
        ("ranks", f"{ranks}", cut),
        ("memory", bytes_of(summary.get("peak_memory_bytes")), "all ranks, at the end"),
    ]
    if summary.get("takeovers"):
        tiles.append(("take-overs", f"{summary['takeovers']}", counted(summary.get("restarts", 0), "replacement")))
    return [tile for tile in tiles if tile[1] not in ("", "None")]


def _several(runs: list[Run]) -> list[Block]:
    rows = []
    for run in runs:
        summary, (part, accuracy, loss) = run.summary, score_of(run)
        rows.append(
            [
                run.name, status_of(run), part, percent_of(accuracy), number_of(loss),
                seconds_of(summary.get("train_s")), seconds_of(summary.get("wall_s")),
                number_of(summary.get("samples_per_s")),
                f"{summary.get('ranks', run.size)}", bytes_of(summary.get("peak_memory_bytes")), _hash(summary),
            ]
        )  # fmt: skip
    findings = [(run.name, findings_of(run)) for run in runs]
    advice = [(name, found[-1]) for name, found in findings if found]
    disturbed = [f"{name}: {line}" for name, found in findings for line in found if line.startswith(WORDS)]
    return [
        *[Text(text, "lead") for text in _bits(runs)],
        Table(HEAD, rows),
        *[Text(f"{run.name}: {told}", "note") for run in runs if (told := _counted_since(run))],
        *[Text(told, "note") for told in disturbed],
        *([Table(("run", "what limited it, what to try"), advice)] if advice else []),
    ]


def _hash(summary: dict[str, Any]) -> str:
    return str(summary.get("weights_sha256", ""))[:12]


def _bits(runs: list[Run]) -> list[str]:
    """Runs that ended with the same weights, if there are any."""
    same: dict[str, list[str]] = {}
    for run in runs:
        if run.summary.get("weights_sha256"):
            same.setdefault(str(run.summary["weights_sha256"]), []).append(run.name)
    groups = [names for names in same.values() if len(names) > 1]
    if len(groups) == 1 and len(groups[0]) == len(runs):
        return [f"All {len(runs)} runs ended with the same weights, bit for bit."]
    return [f"{', '.join(names)} ended with the same weights, bit for bit." for names in groups]
