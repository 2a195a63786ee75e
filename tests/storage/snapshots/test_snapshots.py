"""Snapshots: written, found, kept and removed when nothing goes wrong; what is refused before anything is written."""

import fcntl
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from support.paths import IMPORTS
from support.training.snapshot_cases import arrays_at, contents, facts_at, is_exact, positions, put
from unisono.errors import UserError
from unisono.storage import weights
from unisono.storage.snapshots.snapshot import SnapshotSearch, newest, require_newest
from unisono.storage.snapshots.writer import NotWritten, write


def test_what_was_written_comes_back_bit_by_bit(tmp_path):
    folder = tmp_path / "snapshots"
    written = put(folder, 34)
    found = newest(folder)
    assert written.problems == found.rejected == []
    assert found.snapshot.path == written.path == folder / "000001-000000000034"
    assert found.snapshot.groups == ["params", "state", "buffers"]
    assert list(found.snapshot.arrays("params")) == ["10.W", "2.b", "2.A"]
    assert is_exact(found.snapshot)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", written.path.name]


def test_arrays_are_fresh_and_may_be_changed(tmp_path):
    put(tmp_path, 1)
    snapshot = require_newest(tmp_path)
    snapshot.arrays("params")["10.W"][:] = 0
    assert is_exact(snapshot)


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=">f4").reshape(2, 3).T, np.array([True, False]), np.arange(8)[::2], np.float16([1.5])],
    ids=["big endian, transposed", "bool", "strided", "half"],
)
def test_odd_arrays_survive(tmp_path, array):
    write(tmp_path, 0, {"params": {"x": array}}, {})
    found = require_newest(tmp_path).arrays("params")["x"]
    assert (found.shape, found.dtype) == (array.shape, array.dtype.newbyteorder("="))
    assert (found == array).all()


def test_a_group_is_a_file_that_other_commands_read(tmp_path):
    path = put(tmp_path, 3).path / "params.safetensors"
    assert list(weights.read(path)) == list(arrays_at(3)["params"])


def test_equal_contents_give_equal_files(tmp_path):
    first, second = (contents(put(tmp_path, 5).path) for _ in range(2))
    assert first == second


def test_the_manifest_is_json_that_says_what_is_there(tmp_path):
    path = put(tmp_path, 12).path
    told = json.loads((path / "manifest.json").read_text())
    assert (told["format"], told["version"], told["position"]) == ("unisono snapshot", 1, 12)
    assert told["facts"] == facts_at(12)
    assert {f"{group}.safetensors": entry["bytes"] for group, entry in told["files"].items()} == {
        file.name: file.stat().st_size for file in path.glob("*.safetensors")
    }


@pytest.mark.parametrize("keep", [2, 3, 5])
def test_as_many_are_kept_as_asked_for(tmp_path, keep):
    for position in range(1, 8):
        assert put(tmp_path, position, keep).problems == []
        assert positions(tmp_path) == list(range(position, max(0, position - keep), -1))
    assert len(list(tmp_path.iterdir())) == keep + 1


def test_damaged_ones_do_not_count_and_the_last_good_one_stays(tmp_path):
    for position in (1, 2, 3):
        put(tmp_path, position, keep=5)
    for position in (2, 3):
        (tmp_path / f"00000{position}-00000000000{position}" / "state.safetensors").write_bytes(b"")
    written = put(tmp_path, 4)
    assert positions(tmp_path) == [4, 3, 2, 1], "1 is the only whole one before 4"
    assert [problem.split(": ")[1][:17] for problem in written.problems] == ["state.safetensors"] * 2
    put(tmp_path, 5)
    assert positions(tmp_path) == [5, 4], "with two whole ones the damaged ones go"


def test_the_newest_is_the_one_written_last_even_at_a_position_that_was_there(tmp_path):
    for position in (20, 30):
        put(tmp_path, position)
    (tmp_path / "000002-000000000030" / "manifest.json").unlink()
    assert require_newest(tmp_path).position == 20
    for position in (25, 30):
        put(tmp_path, position)
        found = newest(tmp_path)
        assert (found.snapshot.position, found.rejected) == (position, [])
        assert is_exact(found.snapshot)
    assert [path.name for path in sorted(tmp_path.glob("0*"))] == ["000003-000000000025", "000004-000000000030"]


def test_leftovers_are_no_snapshots_and_the_next_write_clears_them(tmp_path):
    whole = put(tmp_path, 1).path
    outside = tmp_path / "precious"
    outside.write_text("x")
    for name in (".draft-00", ".removing-000000-000000000000"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "link").symlink_to(outside)
        for file in whole.iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    before = contents(tmp_path)
    assert newest(tmp_path).snapshot.path == whole
    assert contents(tmp_path) == before, "reading changes nothing"
    put(tmp_path, 2)
    assert positions(tmp_path) == [2, 1]
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith((".draft", ".removing"))]
    assert outside.read_text() == "x"


def test_no_folder_and_an_empty_one_hold_no_snapshot(tmp_path):
    assert newest(tmp_path / "none") == SnapshotSearch(tmp_path / "none", None, [])
    assert newest(tmp_path) == SnapshotSearch(tmp_path, None, [])
    with pytest.raises(UserError, match="holds no snapshot\nHINT:") as raised:
        require_newest(tmp_path)
    assert raised.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_an_unknown_group_is_named(tmp_path):
    put(tmp_path, 1)
    with pytest.raises(UserError, match="'parms'; there are: params, state, buffers\nHINT: did you mean 'params'"):
        require_newest(tmp_path).arrays("parms")


REFUSED = {
    "keep": (dict(keep=1), "--keep is 1"),
    "position": (dict(position=-1), "position is -1"),
    "path as group": (dict(arrays={"../params": {}}), r"'\.\./params'"),
    "upper case": (dict(arrays={"Params": {}}), "'Params'"),
    "NaN": (dict(facts={"loss": float("nan")}), "Out of range float"),
    "infinity": (dict(facts={"best": [float("inf")]}), "Out of range float"),
    "tuple": (dict(facts={"shape": (1, 2)}), "JSON gives back something else"),
    "key": (dict(facts={1: 2}), "JSON gives back something else"),
    "object": (dict(facts={"x": np.float32(1)}), "float32 is not JSON"),
    "long": (dict(facts={"x": "x" * (1 << 24)}), "16.0 MiB; at most 16 MiB"),
    "strings": (dict(arrays={"params": {"x": np.array(["a"])}}), r"params\.safetensors"),
    "complex": (dict(arrays={"params": {"x": np.complex64([1])}}), r"params\.safetensors holds x, of type C64"),
    "reserved": (dict(arrays={"params": {"__metadata__": np.ones(1)}}), r"params\.safetensors .*twice"),
    "control": (dict(arrays={"params": {"a\nb": np.ones(1)}}), r"array called 'a\\nb'"),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_could_not_be_given_back_is_refused_and_nothing_is_left(tmp_path, changed, message):
    given = {"position": 2, "arrays": arrays_at(2), "facts": facts_at(2)} | changed
    put(tmp_path, 1)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=message) as raised:
        write(tmp_path, **given)
    assert "HINT: " in str(raised.value)
    assert not isinstance(raised.value, NotWritten)
    assert contents(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_second_writer_is_refused_while_the_first_writes(tmp_path):
    put(tmp_path, 1)
    with open(tmp_path / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NotWritten, match=f"another process is writing a snapshot into {tmp_path}"):
            put(tmp_path, 2)
        assert newest(tmp_path).snapshot.position == 1, "readers need no lock"
    put(tmp_path, 2)
    assert positions(tmp_path) == [2, 1]


def test_a_child_forked_during_a_write_does_not_keep_the_lock(tmp_path):
    reading, writing = os.pipe()
    children = []

    class Forking(dict):
        """Arrays that fork when they are asked for: in the middle of a write."""

        def __getitem__(self, key):
            if not children:
                children.append(os.fork())
                if children[0] == 0:
                    os.close(writing)
                    os.read(reading, 1)
                    os._exit(0)
            return super().__getitem__(key)

    try:
        write(tmp_path, 1, Forking(arrays_at(1)), facts_at(1))
        put(tmp_path, 2)
    finally:
        os.close(writing)
        os.close(reading)
        for child in children:
            os.waitpid(child, 0)
    assert positions(tmp_path) == [2, 1]


MANY = """
import sys
from pathlib import Path
from support.training.snapshot_cases import put
from unisono.storage.snapshots.writer import NotWritten
done = refused = 0
while done < 15:
    try:
        put(Path(sys.argv[1]), 100 * int(sys.argv[2]) + done)
        done += 1
    except NotWritten as error:
        assert "another process" in str(error), error
        refused += 1
"""


def test_two_writers_and_a_reader_at_once(tmp_path):
    put(tmp_path, 0)
    writers = [
        subprocess.Popen([sys.executable, "-c", MANY, tmp_path, str(k)], env=os.environ | IMPORTS) for k in (1, 2)
    ]
    try:
        while any(writer.poll() is None for writer in writers):
            found = newest(tmp_path)
            assert found.snapshot is not None, "whole ones are always there, though not always the same"
            assert found.rejected == []
    finally:
        assert [writer.wait(60) for writer in writers] == [0, 0]
    found = newest(tmp_path)
    assert is_exact(found.snapshot)
    assert found.rejected == []
    assert found.snapshot.path.name.startswith("000031-"), "31 were written, each with a number of its own"
    assert len(list(tmp_path.iterdir())) == 3
