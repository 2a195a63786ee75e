"""Others on the machine: counted on our cores, without what we used ourselves; said where it is felt."""

import os
from collections import namedtuple

import psutil
import pytest

from support.energy.counters import Clock
from unisono.energy import resource_usage
from unisono.energy.resource_usage import BackgroundLoad, busy_s, disturbance, read_node

Core = namedtuple("Core", "user nice system idle iowait irq softirq steal guest guest_nice")


def test_only_cores_that_are_ours_count_and_guests_only_once(monkeypatch):
    quiet, busy = (Core(user, 1, 2, 1e6, 1e6, 3, 4, 5, user, 1) for user in (100, 900))
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [quiet, busy])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert busy_s() == 115
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert read_node().cpu_s == 115 + 915


def test_others_are_what_is_left_of_what_the_cores_gave(monkeypatch):
    monkeypatch.setattr(resource_usage, "under_quota", lambda: False)
    clock, given = Clock(), [50.0]
    found = BackgroundLoad(clock, lambda: given[0])
    given[0] += 19.0
    clock.turn(10.0)
    assert found.cores(ours_s=11.0) == pytest.approx(0.8)
    assert found.cores(ours_s=20.0) == 0.0


def test_what_we_and_our_children_used_was_not_others(monkeypatch):
    monkeypatch.setattr(resource_usage, "under_quota", lambda: False)
    used = namedtuple("used", "ru_utime ru_stime")
    spent = {
        resource_usage.resource.RUSAGE_CHILDREN: used(4.0, 1.0),
        resource_usage.resource.RUSAGE_SELF: used(0.5, 0.5),
    }
    monkeypatch.setattr(resource_usage.resource, "getrusage", lambda who: used(0.0, 0.0))
    clock, given = Clock(), [50.0]
    found = BackgroundLoad(clock, lambda: given[0])
    monkeypatch.setattr(resource_usage.resource, "getrusage", spent.get)
    given[0] += 8.0
    clock.turn(10.0)
    assert found.cores() == pytest.approx(0.2)


def test_it_is_not_known_of_a_moment_or_under_a_quota(monkeypatch):
    clock = Clock()
    found = BackgroundLoad(clock, lambda: 9.0)
    clock.turn(0.4)
    assert found.cores(0.0) is None
    clock.turn(0.4)
    monkeypatch.setattr(resource_usage, "usable_cores", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert found.cores(0.0) is None
    monkeypatch.setattr(resource_usage, "usable_cores", lambda: 2)
    assert found.cores(0.0) == 0.0


def test_a_quarter_of_the_cores_is_felt():
    assert disturbance(0.5, 2) == disturbance(None, 2) == disturbance(float("nan"), 2) == ""
    assert disturbance(1.6, 2).startswith("Other programs kept 1.6 of the 2 cores busy meanwhile, so ")
    assert "of the 8 cores of n1 busy" in disturbance(3.0, 8, " of n1")
