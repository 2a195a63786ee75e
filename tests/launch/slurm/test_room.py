"""Jobs that could never start are refused, by what sinfo says."""

import pytest

from unisono.errors import UserError
from unisono.launch.slurm import room
from unisono.launch.slurm.room import Wanted, check_room, megabytes

SINFO = """\
small*|4|2|4000
small*|2|8+|16000+
fat|1|64|500000
"""


@pytest.fixture(autouse=True)
def sinfo(monkeypatch):
    monkeypatch.setattr(room, "call", lambda words: SINFO)


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted("", 6, 2, 4000),
        Wanted("", 2, 8, 16000),
        Wanted("fat", 1, 64, 500000),
        Wanted("small,fat", 1, 64, 1),
    ],
)
def test_there_is_room(wanted):
    check_room(wanted)


@pytest.mark.parametrize(
    "wanted", [Wanted("", 7, 1, 1), Wanted("", 3, 8, 1), Wanted("", 1, 8, 16001), Wanted("fat", 2, 1, 1)]
)
def test_there_is_none(wanted):
    with pytest.raises(UserError) as caught:
        check_room(wanted)
    for words in (f"{wanted.cores} cores", "would wait for ever", "nodes of", "HINT: "):
        assert words in str(caught.value)


def test_a_partition_that_is_not_there():
    with pytest.raises(UserError, match="there is no partition tiny"):
        check_room(Wanted("tiny", 1, 1, 1))


def test_a_cluster_without_a_default_is_left_to_say_so_itself(monkeypatch):
    monkeypatch.setattr(room, "call", lambda words: SINFO.replace("*", ""))
    check_room(Wanted("", 99, 99, 99))


def test_sizes():
    assert [megabytes(size) for size in ("800", "800M", "4g", "1T", "2048K")] == [800, 800, 4096, 1048576, 2]
