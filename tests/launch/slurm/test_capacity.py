"""Jobs that could never start are refused, by what sinfo says."""

import pytest

from support.slurm.answer_mutations import mutations
from unisono.errors import UserError
from unisono.launch.slurm import capacity
from unisono.launch.slurm.capacity import WantedNodes, check_room, megabytes
from unisono.launch.slurm.command import plain

SINFO = """\
small*|4|2|4000
small*|2|8+|16000+
fat|1|64|500000
"""


@pytest.fixture(autouse=True)
def sinfo(monkeypatch):
    monkeypatch.setattr(capacity, "call", lambda words: SINFO)


@pytest.mark.parametrize(
    "wanted",
    [
        WantedNodes("", 6, 2, 4000),
        WantedNodes("", 2, 8, 16000),
        WantedNodes("fat", 1, 64, 500000),
        WantedNodes("small,fat", 1, 64, 1),
    ],
)
def test_there_is_room(wanted):
    check_room(wanted)


@pytest.mark.parametrize(
    "wanted",
    [WantedNodes("", 7, 1, 1), WantedNodes("", 3, 8, 1), WantedNodes("", 1, 8, 16001), WantedNodes("fat", 2, 1, 1)],
)
def test_there_is_none(wanted):
    with pytest.raises(UserError) as caught:
        check_room(wanted)
    for words in (f"{wanted.cores} cores", "would wait for ever", "nodes of", "HINT: "):
        assert words in str(caught.value)


def test_a_partition_that_is_not_there():
    with pytest.raises(UserError, match="there is no partition tiny"):
        check_room(WantedNodes("tiny", 1, 1, 1))


@pytest.mark.parametrize("answer", [SINFO.replace("*", ""), ""])
def test_a_cluster_without_a_default_or_partitions_is_left_to_say_so_itself(answer, monkeypatch):
    monkeypatch.setattr(capacity, "call", lambda words: answer)
    assert check_room(WantedNodes("", 99, 99, 99)) == ""


def test_sizes():
    assert [megabytes(size) for size in ("800", "800M", "4g", "1T", "2048K")] == [800, 800, 4096, 1048576, 2]


def test_no_answer_of_sinfo_is_a_traceback(monkeypatch):
    refusals = []
    for answer in mutations(SINFO, seed=31, count=400):
        monkeypatch.setattr(capacity, "call", lambda words, answer=answer: plain(answer))
        for partition in ("", "fat"):
            try:
                check_room(WantedNodes(partition, 1, 1, 1))
            except UserError as error:
                refusals.append(str(error))
    assert refusals
    assert all("would wait for ever" in told or "there is no partition" in told for told in refusals)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("fat|1|n/a|500000", WantedNodes("fat", 99, 1, 1)),
        ("fat|UNLIMITED|64|1+", WantedNodes("fat", 99, 1, 1)),
        ("fat|1", WantedNodes("fat", 99, 1, 1)),
        ("garbage", WantedNodes("tiny", 1, 1, 1)),
        ("|1|2|3", WantedNodes("tiny", 1, 1, 1)),
    ],
)
def test_what_is_not_understood_proves_nothing_and_is_said(monkeypatch, line, asked):
    monkeypatch.setattr(capacity, "call", lambda words: f"small*|4|2|4000\n{line}\n")
    assert check_room(asked).startswith("sinfo answered, but not as expected: small*|4|2|4000 ")


def test_columns_that_came_since_and_thousands_are_understood(monkeypatch):
    monkeypatch.setattr(capacity, "call", lambda words: "small*|1.5K|2|4000|new\n\n")
    assert check_room(WantedNodes("", 1536, 2, 1)) == ""
    with pytest.raises(UserError, match="would wait for ever: small has 1536 nodes"):
        check_room(WantedNodes("small", 1537, 2, 1))
