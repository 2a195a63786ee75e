"""`unisono profile`, as a user runs it."""

import json
import subprocess
import sys


def unisono(*words, cwd):
    command = [sys.executable, "-m", "unisono", "profile", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd, check=False)


def test_tables_json_and_a_trace_of_two_ranks(tmp_path):
    ended = unisono("--model", "bn-mlp:8", "--batches", "6", "--ranks", "2", "--out", "o", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for word in ("phases of a step", "BatchNorm", "matmul", "Looking cost", "rank 1", "Written: o/profile.json"):
        assert word in ended.stdout
    events = json.loads((tmp_path / "o" / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {"wait", "data", "update"} <= {event["name"] for event in events}
    again = unisono("--batches", "6", "--out", "o", cwd=tmp_path)
    assert again.returncode == 2
    assert "holds profile.json, trace.json already" in again.stderr


def test_activations_side_by_side(tmp_path):
    ended = unisono("--activations", "relu,gelu", "--batches", "4", "--ranks", "1", "--no-memory", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "times relu" in ended.stdout
    assert "gelu" in ended.stdout
    assert "memory" not in ended.stdout


def test_mistakes_are_told_without_a_traceback(tmp_path):
    ended = unisono("--sort", "size", cwd=tmp_path)
    assert ended.returncode == 2
    assert "HINT" in ended.stderr
    assert "Traceback" not in ended.stderr
