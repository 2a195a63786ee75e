"""Samples of ranks, node and GPUs: when they are taken, what they say, who did nothing."""

import csv
import os

import pytest

from support.energy.counters import Clock, FakeNvml
from unisono.energy.counters import find_gpus
from unisono.energy.meter import Counters, Meter
from unisono.energy.resource_usage import Process, read_process
from unisono.energy.utilisation_sampler import HEADER, Sampler


class Node:
    """Processes by pid, and what a sampler wrote of them."""

    def __init__(self, counters=()):
        self.clock, self.cpu_s, self.text = Clock(), {}, HEADER
        meter = Meter(Counters(counters), 8.0, self.clock)
        self.others_s = 0.0
        self.sampler = Sampler(meter, self.write, self.clock, self.look, node=self.whole)

    def write(self, text):
        self.text += text

    def look(self, pid):
        return Process(self.cpu_s[pid], 1000 * pid) if pid in self.cpu_s else None

    def whole(self):
        return Process(7.0 + self.others_s + sum(self.cpu_s.values()), 5_000_000)

    def work(self, seconds, others=0.0, **cores):
        """For so long, ranks r0, r1 ... and others use so many cores; looked at eight times a second."""
        pids = {int(name[1:]): 10 + int(name[1:]) for name in cores}
        for _ in range(round(8 * seconds)):
            for name, used in cores.items():
                pid = pids[int(name[1:])]
                self.cpu_s[pid] = self.cpu_s.get(pid, 0.0) + 0.125 * used
            self.others_s += 0.125 * others
            self.clock.turn(0.125)
            self.sampler.tick(pids)

    @property
    def rows(self):
        return list(csv.DictReader(self.text.splitlines()))


def test_every_two_seconds_and_once_soon():
    node = Node()
    node.work(5.0, others=0.25, r0=1.0, r1=0.5)
    assert [row["s_after_start"] for row in node.rows if row["what"] == "node"] == ["0.38", "2.38", "4.38"]
    last = {row["what"]: row for row in node.rows[-4:]}
    names = ["rank 0", "rank 1", "all ranks", "node"]
    assert [last[name]["utilisation"] for name in names] == ["1", "0.5", "1.5", "1.75"]
    assert [last[name]["memory_bytes"] for name in names] == ["10000", "11000", "21000", "5000000"]
    assert last["node"]["power_w"] == ""


def test_a_resumed_run_goes_on_counting():
    node = Node()
    node.sampler = Sampler(Meter(Counters(()), 8.0, node.clock), node.write, node.clock, node.look, before_s=100.0)
    node.work(3.0, r0=1.0)
    assert [row["s_after_start"] for row in node.rows if row["what"] == "node"] == ["100.38", "102.38"]


def test_a_replacement_is_another_process_and_one_that_ended_is_left_out():
    node = Node()
    node.work(3.0, r0=1.0, r1=1.0)
    node.cpu_s[77] = 50.0  # lived before: that is not of this interval
    node.sampler.tick({0: 10, 1: 77})
    del node.cpu_s[10]
    node.cpu_s[77] += 1.0
    node.clock.turn(2.0)
    node.sampler.tick({0: 10, 1: 77})
    assert [row["what"] for row in node.rows[-3:]] == ["rank 1", "all ranks", "node"]
    assert float(node.rows[-3]["utilisation"]) < 1.0


def test_a_rank_that_was_not_looked_at_for_a_while_is_counted_from_where_it_is_seen_again():
    node = Node()
    node.work(3.0, r0=1.0, r1=1.0)
    for _ in range(40):  # nobody says that rank 1 is there, and it works
        node.cpu_s[11] += 0.125
        node.work(0.125, r0=1.0)
    node.work(5.0, r0=1.0, r1=1.0)
    mine = [float(row["utilisation"]) for row in node.rows if row["what"] == "rank 1"]
    assert max(mine) == 1.0
    assert mine[-1] == 1.0
    assert max(float(row["utilisation"]) for row in node.rows if row["what"] == "all ranks") == 2.0


def test_a_sample_waits_for_ranks_that_have_just_been_met():
    node = Node()
    node.work(2.25, r0=1.0)
    node.cpu_s = {77: 50.0}  # in its place, and at the moment of a sample
    node.clock.turn(0.125)
    node.sampler.tick({0: 77})
    node.clock.turn(0.125)
    node.sampler.tick({0: 77})
    assert [row["what"] for row in node.rows] == ["rank 0", "all ranks", "node"] * 2


def test_ranks_that_did_nothing_are_named_unless_nobody_did_anything():
    node = Node()
    node.work(5.0, r0=0.9, r1=0.01, r2=0.8)
    assert node.sampler.idle_ranks() == [1]
    node.work(3.0, r0=0.9, r1=0.7, r2=0.8)
    assert node.sampler.idle_ranks() == []
    sleeping = Node()
    sleeping.work(5.0, r0=0.1, r1=0.0)
    assert sleeping.sampler.idle_ranks() == []


def test_gpus_have_lines_of_their_own():
    node = Node(find_gpus(None, FakeNvml([68.0, 70.0]))[0])
    node.work(3.0, r0=1.0)
    rows = {row["what"]: row for row in node.rows[-5:]}
    assert rows["gpu 1"]["power_w"] == "70"
    assert (rows["gpu 0"]["utilisation"], rows["gpu 0"]["temperature_c"]) == ("0.97", "71")
    assert rows["node"]["power_w"] == "138"


def test_a_real_process_is_looked_at_and_one_that_is_gone_is_not(tmp_path):
    found = read_process(os.getpid())
    assert found.cpu_s > 0
    assert found.memory_bytes > 1 << 20
    assert read_process(2**22 + 1) is None
    folder = tmp_path / "5"
    folder.mkdir()
    (folder / "stat").write_text("5 (a) b (c)) S " + " ".join(map(str, range(4, 53))))
    (folder / "statm").write_text("100 7 3")
    ticks = os.sysconf("SC_CLK_TCK")
    assert read_process(5, tmp_path) == Process(pytest.approx((14 + 15) / ticks), 7 * os.sysconf("SC_PAGE_SIZE"))
