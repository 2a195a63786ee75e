import numpy as np
import pytest

from unisono.comm.base import OPS
from unisono.errors import UserError
from unisono.measure.allreduce_bench import BenchOptions, check_memory, measure, plan
from unisono.measure.allreduce_bench_worker import fill, holds, pattern, record
from unisono.measure.options import choices, numbers, sizes

SMALL = {"transports": "shm", "elements": "0,1,5000", "seconds": 0.001}


def test_every_algorithm_is_measured_and_right():
    records = list(measure(plan(BenchOptions(ranks="3", **SMALL))))
    assert len(records) == 3 * 7
    assert all(entry["correct"] for entry in records)
    assert {entry["algorithm"] for entry in records} == {
        "naive", "ring", "tree", "doubling", "halving", "native", "arena",
    }  # fmt: skip
    ring = next(entry for entry in records if entry["algorithm"] == "ring" and entry["elements"] == 5000)
    assert ring["sent_bytes_per_rank"] == pytest.approx(ring["formula_bytes_per_rank"], rel=1e-3)
    assert len(ring["samples_us"]) == ring["repetitions"] >= 5


@pytest.mark.parametrize("op", OPS)
def test_other_ops_and_types(op):
    options = BenchOptions(ranks="2", op=op, dtype="float16" if op == "max" else "int64", **SMALL)
    assert all(entry["correct"] for entry in measure(plan(options)))


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_result_is_noticed(op):
    period = pattern(1, 3, op, np.dtype(np.float32))
    array = np.empty(2000, np.float32)
    fill(array, period)
    assert holds(array, period)
    for position in (0, 1500, 1999):
        array[position] += 1
        assert not holds(array, period)
        array[position] -= 1


def test_patterns_differ_between_ranks():
    for op in OPS:
        assert not (pattern(0, 3, op, np.dtype(np.int32)) == pattern(1, 3, op, np.dtype(np.int32))).all()


def test_bandwidths_are_those_of_nccl_tests():
    spec = {"transport": "shm", "ranks": 4, "dtype": "float32", "op": "sum"}
    found = record(spec, "ring", 4000, [2e-6, 1e-6, 3e-6], correct=True, sent=24000)
    assert found["median_us"] == pytest.approx(2.0)
    assert found["algorithm_gb_per_s"] == pytest.approx(2.0)
    assert found["bus_gb_per_s"] == pytest.approx(3.0)
    assert found["sent_bytes_per_rank"] == found["formula_bytes_per_rank"] == 6000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": "0"}, "--ranks 0: each must be 1 or more"),
        ({"ranks": "2,-1"}, "--ranks 2,-1: each must be 1 or more"),
        ({"ranks": "two"}, "--ranks two: not a list of whole numbers"),
        ({"algorithms": "rnig"}, "unknown all-reduce algorithm 'rnig'; there are: ring, naive, .*did you mean 'ring'"),
        ({"algorithms": ","}, "no all-reduce algorithm given"),
        ({"transports": "tcp"}, "unknown transport 'tcp'; there are: shm, mpi, gloo"),
        ({"op": "avg"}, "unknown op 'avg'; there are: sum, max, min, prod"),
        ({"dtype": "float8"}, "unknown dtype 'float8'"),
        ({"sizes": "4 elephants"}, "--sizes 4 elephants: not a size"),
        ({"sizes": ""}, "--sizes is empty"),
        ({"seconds": 0.0}, "--seconds is 0.0\nHINT: give a number above 0"),
        ({"seconds": float("nan")}, "--seconds is nan"),
        ({"timeout_s": float("inf")}, "--timeout-s is inf"),
        ({"sizes": "1KiB,6"}, "--sizes 6: not a whole number of float32"),
        ({"sizes": "900GiB"}, r"2 ranks with arrays of 900 GiB need about .* of memory, .* are available"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(options, message):
    with pytest.raises(UserError, match=f"(?s){message}") as caught:
        plan(BenchOptions(**options))
    assert caught.value.exit_code == 2


def test_a_transport_that_is_not_installed_names_the_extra(monkeypatch):
    monkeypatch.setattr("unisono.launch.connect.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"mpi needs the package mpi4py.*\nHINT: pip install '.\[mpi\]' in "):
        plan(BenchOptions(transports="mpi"))
    with pytest.raises(UserError, match=r"HINT: pip install -c constraints.txt '.\[torch\]' in "):
        plan(BenchOptions(transports="shm,gloo"))
    assert {world.transport for world in plan(BenchOptions())} == {"shm"}


def test_cells_that_a_transport_cannot_do_are_left_out():
    (shm, mpi) = plan(BenchOptions(transports="shm,mpi", dtype="float16"))
    assert "native" in shm.algorithms
    assert "native" not in mpi.algorithms
    assert "ring" in mpi.algorithms


def test_memory_is_checked_with_the_copies_of_the_naive_algorithm(monkeypatch):
    monkeypatch.setattr("unisono.measure.allreduce_bench.available_bytes", lambda: 3 * 2**30)
    check_memory(8, 64 * 2**20, ["ring"])
    with pytest.raises(UserError, match="or leave out naive"):
        check_memory(8, 64 * 2**20, ["ring", "naive"])


def test_lists():
    assert sizes("512, 1KiB,2k,3MB", "--sizes") == [512, 1024, 2048, 3 * 2**20]
    assert numbers("3,3,1", "--ranks") == [3, 1]
    assert choices("all", ["a", "b"], "letter") == ["a", "b"]
