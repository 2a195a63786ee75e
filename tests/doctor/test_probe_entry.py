import json
import os
import signal
import subprocess
import sys
import time

import pytest
import threadpoolctl  # noqa: F401 (it sets a variable of the environment, once)

from unisono.doctor.probe_entry import call
from unisono.doctor.probes import PROBES
from unisono.errors import UserError


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_is_where_the_table_says(name):
    module, _, function = PROBES[name].place.partition(":")
    found = __import__(f"unisono.doctor.probes.{module}", fromlist=[function])
    assert callable(getattr(found, function))


def test_an_error_of_ours_is_a_finding(monkeypatch):
    def fails():
        raise UserError("no memory", hint="buy some")

    monkeypatch.setattr("unisono.doctor.probes.machine.probe", fails)
    (finding,) = call("machine")
    assert (finding.status, finding.told, finding.fix) == ("failed", "no memory", "buy some")


def test_the_answer_is_json_in_the_last_line():
    command = [sys.executable, "-m", "unisono.doctor.probe_entry", "network"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [entry["name"] for entry in json.loads(ended.stdout.splitlines()[-1])] == ["host name", "ports"]


def test_a_probe_that_is_given_up_removes_what_it_has_made(tmp_path):
    """SIGTERM while the self-test trains: its directory, in $TMPDIR, goes."""
    command = [sys.executable, "-m", "unisono.doctor.probe_entry", "bits"]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as probe:
        while not any(tmp_path.glob("unisono-doctor-*/1")):
            assert probe.poll() is None
            time.sleep(0.01)
        probe.send_signal(signal.SIGTERM)
        assert probe.wait(30) == 1
    assert list(tmp_path.iterdir()) == []
