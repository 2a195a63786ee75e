"""Traces in Chrome's format: bars of all ranks from one zero, long before short, names that say what it was."""

import json

from unisono.report.studies.trace import events_of, write_trace

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
