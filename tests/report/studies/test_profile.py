"""Tables of a profile: added up, sorted, with and without memory; its trace in Chrome's format."""

import io
import json

import pytest
from rich.console import Console

from support.report.profile_records import record, row
from unisono.report.studies.profile import Shown, activation_rows, activations, grouped, sentences, sort, tables, write
from unisono.report.studies.trace import events_of, write_trace

RECORD = record()


def shown(*renderables):
    console = Console(file=io.StringIO(), width=120)
    console.print(*renderables, sep="")
    return console.file.getvalue()


def test_rows_of_one_kind_are_added_up():
    found = grouped([entry for entry in RECORD["modules"] if entry["rank"] == 0], "kind", "phase")
    linear = next(entry for entry in found if entry["kind"] == "Linear")
    assert (linear["calls"], linear["self_s"], linear["memory_bytes"]) == (20, 0.8, 1536)
    assert linear["average_s"] == pytest.approx(0.04)


def test_the_tables_say_what_each_phase_and_module_takes():
    text = shown(*tables(RECORD, Shown(top=2)))
    lines = [line.split() for line in text.splitlines()]
    assert ["waiting", "10", "%", "100", "ms", "20", "%", "0", "%"] in lines
    assert ["sync", "20", "%", "200", "ms", "30", "%", "10", "%"] in lines
    assert lines[[line[:3] for line in lines].index(["2", "Linear,", "forward"])][3:6] == ["50.0", "500", "ms"]
    assert ["1", "more", "16.7", "1.0", "s"] in lines
    assert "op3" in text
    assert "op1" not in text
    assert "KiB" not in shown(*tables(RECORD, Shown(memory=False)))
    assert "op3 4x2" in shown(*tables(RECORD, Shown(shapes=True)))


def test_a_time_too_short_to_tell_is_no_number():
    modules = [row("0", "Linear", self_s=1e-4), row("1", "ReLU", self_s=9e-8), row("2", "Tanh", self_s=0.0)]
    lines = shown(*tables(record(modules=modules, operators=[]), Shown())).splitlines()
    told = {name: next(line for line in lines if f"{name}, forward" in line) for name in ("Linear", "ReLU", "Tanh")}
    assert "< 0.1 us" not in told["Linear"]
    assert told["ReLU"].count("< 0.1 us") == told["Tanh"].count("< 0.1 us") == 3
    assert not any(" 0.0 us" in line for line in lines)


@pytest.mark.parametrize(
    ("by", "first"), [("self", "c"), ("calls", "b"), ("memory", "a"), ("name", "a"), ("average", "b")]
)
def test_rows_are_sorted_by_what_was_asked_for(by, first):
    rows = [
        {"name": "a", "self_s": 1.0, "average_s": 1.0, "calls": 1, "memory_bytes": 9},
        {"name": "b", "self_s": 2.0, "average_s": 3.0, "calls": 3, "memory_bytes": None},
        {"name": "c", "self_s": 3.0, "average_s": 2.0, "calls": 2, "memory_bytes": 1},
    ]
    assert sort(rows, by)[0]["name"] == first


def test_activations_are_compared_with_relu():
    slow = RECORD | {"activation": "gelu", "modules": [row("1", "GELU", self_s=0.5, memory=4096)]}
    lines = [line.split() for line in shown(activations([slow, RECORD], Shown())).splitlines()]
    assert ["relu", "100", "ms", "100", "ms", "10.0", "ms", "1.00", "2", "KiB", "10"] in lines
    assert ["gelu", "500", "ms", "<", "0.1", "us", "50.0", "ms", "5.00", "4", "KiB", "10"] in lines


def test_the_price_of_looking_and_the_sum_of_modules_are_told():
    first, price, total = sentences(RECORD)
    assert first.endswith(": 1.0 s an unwatched step, 64 samples/s.")
    assert price.startswith("Looking cost: phases +1 %, modules +3 % of a step. ")
    assert sentences(record(step_s=0.9))[1].endswith("Phases below are of watched steps, 1.0 s on average.")
    assert "(+2 %)" in total


def test_steps_that_were_interrupted_are_called_so():
    (line,) = sentences(record(step_s=0.6))[3:]
    assert line.startswith("Other programs were in the way: a step took 1.0 s on average, and mostly 606 ms.")
    assert len(sentences(record(step_s=0.7))) == 3


def test_activations_are_medians_and_of_a_backward_that_is_not_known_means():
    known, unknown = (
        row("1", "ReLU", "backward", self_s=0.5),
        row("1", "ReLU", "backward", median_s=None, average_s=0.07),
    )
    for backward, expected_s in ((known, 0.05), (unknown, 0.07)):
        (found,) = activation_rows([record(modules=[row("1", "ReLU", self_s=0.1), backward])])
        assert (found["median_s"], found["backward_median_s"]) == pytest.approx((0.01, expected_s))


def test_files_hold_all_rows_and_a_trace(tmp_path):
    assert [path.name for path in write([RECORD], tmp_path)] == ["profile.json", "trace.json"]
    (kept,) = json.loads((tmp_path / "profile.json").read_text())
    assert len(kept["operators"]) == 3
    assert "spans" not in kept


SPANS = [
    [["wait", 100.001, 100.003], ["step", 100.0, 100.004], ["forward/0/Linear", 100.0, 100.001]],
    [["step", 100.0005, 100.004], ["step", 100.005, 100.006]],
]


def test_bars_are_in_microseconds_from_the_first():
    bars = [event for event in events_of(SPANS) if event["ph"] == "X"]
    assert [(bar["pid"], bar["name"], bar["cat"], bar["ts"], bar["dur"]) for bar in bars] == [
        (0, "step 1", "step", 0.0, 4000.0),
        (0, "0 Linear", "forward", 0.0, 1000.0),
        (0, "wait", "wait", 1000.0, 2000.0),
        (1, "step 1", "step", 500.0, 3500.0),
        (1, "step 2", "step", 5000.0, 1000.0),
    ]


def test_ranks_are_named(tmp_path):
    write_trace(SPANS, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["rank 0", "rank 1"]
    assert len(events_of([[]])) == 2
    assert events_of([]) == []
