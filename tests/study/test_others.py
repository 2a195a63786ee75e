"""Whose processor time it was, by counters that are made up."""

import os
from collections import namedtuple

import psutil
import pytest

from unisono.study import others
from unisono.study.others import Others

CORE = namedtuple("CORE", "user nice system idle iowait irq softirq steal guest guest_nice")


@pytest.fixture
def cores(monkeypatch) -> list[CORE]:
    """Two of them, of which the first is ours; nobody of ours uses any, and ten seconds go by between two looks."""
    found = [CORE(100, 0, 0, 1e6, 0, 0, 0, 0, 0, 0)] * 2
    clock = iter(range(0, 1000, 10))
    used = namedtuple("used", "ru_utime ru_stime")(0.0, 0.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: found)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(others, "usable_cores", lambda: 1)
    monkeypatch.setattr(others.resource, "getrusage", lambda who: used)
    monkeypatch.setattr(others.time, "perf_counter", lambda: next(clock))
    return found


@pytest.mark.parametrize(
    ("what", "busy"), [("user", 0.5), ("system", 0.5), ("steal", 0.5), ("idle", 0.0), ("iowait", 0.0)]
)
def test_what_a_core_of_ours_did_in_ten_seconds(cores, what, busy):
    met = Others()
    cores[0] = cores[0]._replace(**{what: getattr(cores[0], what) + 5})
    assert met.cores() == pytest.approx(busy)


def test_cores_that_are_not_ours_do_not_count(cores):
    met = Others()
    cores[1] = cores[1]._replace(user=900)
    assert met.cores() == 0.0


def test_what_our_children_did_was_not_others(cores, monkeypatch):
    met = Others()
    cores[0] = cores[0]._replace(user=108)
    used = namedtuple("used", "ru_utime ru_stime")
    spent = {others.resource.RUSAGE_CHILDREN: used(4.0, 1.0), others.resource.RUSAGE_SELF: used(0.5, 0.5)}
    monkeypatch.setattr(others.resource, "getrusage", spent.get)
    assert met.cores() == pytest.approx(0.2)


def test_under_a_quota_nobody_can_tell(cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert Others().cores() is None
