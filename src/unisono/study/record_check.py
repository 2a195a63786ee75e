"""Whether a line of a study's cells.jsonl is a record: what its values are, told by their names.

    is_record({"cell": "ranks=2", "status": "finished", "summary": {"train_s": 1.5}})

    lacking({"cell": "ranks=2", "status": "failed"}, "scale")                                       # "labels"

The one idea: units are in names (`_s`, `_bytes`, `_j`), so a name tells what its value is. Tables calculate with these
values and join texts, and a directory may be a stranger's; so it is looked at once, when it is read, and so is whether
everything is there that the study needs to go on.

Limits: whether the numbers are true is not known.
"""

import re
from pathlib import PurePosixPath
from typing import Any

_UNITS = ("_s", "_bytes", "_j", "_w", "_cores", "_loss", "_accuracy", "_sample", "_epoch", "_code")
_NUMBERS = {
    "repeat", "seconds", "ranks", "nodes", "shards", "threads", "global_batch", "batch_size_per_rank", "takeovers",
    "restarts", "shard_price", "epochs", "steps", "samples", "epochs_timed", "cores",
}  # fmt: skip
_TEXTS = {
    "what", "cell", "digest", "run", "ended_at", "status", "reason", "error", "scored", "job", "energy_source",
    "weights_sha256", "host", "cpu", "strategy", "model", "data",
}  # fmt: skip
_LISTS = {"accuracies", "wait_per_push_s"}
_TABLES = {"labels", "summary", "machine"}
_NEEDED = ("train_s", "wall_s", "samples_per_s")
_MOST = 10**300
_ALWAYS = ("cell", "labels", "digest", "status", "reason", "elapsed_s")
_OF_RUN, _OF_TRIAL = ("repeat", "run", "summary"), ("seconds",)
_OF_FINISHED_TRIAL = ("samples_per_s", "shards", "global_batch", "memory_bytes", "energy_source")
_COUNT = re.compile("[1-9][0-9]{0,8}")


def is_record(record: Any) -> bool:
    """Whether every value is of the kind that its name says, and the run lies in the study."""
    if not isinstance(record, dict) or not all(_is_right(name, value) for name, value in record.items()):
        return False
    if not isinstance(record.get("cell", ""), str) or not isinstance(record.get("digest", ""), str):
        return False
    if record.get("status") == "finished" and any(
        name in found and found[name] is None for found in (record, record.get("summary") or {}) for name in _NEEDED
    ):
        return False
    labels, run = record.get("labels") or {}, PurePosixPath(record.get("run") or "")
    return all(isinstance(text, str) for text in labels.values()) and not run.is_absolute() and ".." not in run.parts


def lacking(record: dict[str, Any], kind: str) -> str:
    """What a record of a study (`unisono KIND`) needs, and has not or has as null; empty if it is complete."""
    needed, keys = [*_ALWAYS], ["exit_code"]  # keys: what may be null
    finished, found = record.get("status") == "finished", dict(record)
    if kind != "tune":
        needed += _OF_RUN
        if finished:
            summary = record.get("summary") or {}
            found |= {f"summary.{name}": value for name, value in summary.items()}
            needed += [f"summary.{name}" for name in _NEEDED]
            keys.append("summary.weights_sha256")
    elif record.get("what") == "training":
        keys.append("train_s")
    else:
        needed += ("what", *_OF_TRIAL, *(_OF_FINISHED_TRIAL if finished else ()))
        keys += ["joules_per_sample"] if finished else []
        labels = {"ranks": "", "batch_size": "1"} | (record.get("labels") or {})
        found |= {f"labels.{name}": labels[name] if _COUNT.fullmatch(labels[name]) else None for name in labels}
        needed += ("labels.ranks", "labels.batch_size")
    absent = [name for name in needed if found.get(name) is None]
    return next(iter([*absent, *(name for name in keys if name not in found)]), "")


def _is_right(name: str, value: Any) -> bool:
    if value is None:
        return True
    if name in _TABLES:
        return isinstance(value, dict) and (
            name == "labels" or all(_is_right(inner, entry) for inner, entry in value.items())
        )
    if name in _LISTS:
        return isinstance(value, list) and all(map(_is_number, value))
    if name == "repeat":
        return type(value) is int
    if name in _TEXTS:
        return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)  # halves of pairs
    return _is_number(value) if name in _NUMBERS or name.endswith(_UNITS) else True


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < _MOST)
