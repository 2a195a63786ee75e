"""One task of SLURM's a node and --ranks-per-node: what it is told by hand elsewhere, it reads from SLURM."""

from dataclasses import replace

import pytest

from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.launch.machine_options import MachineOptions
from unisono.launch.slurm.step_facts import StepFacts, as_supervisor, step_facts

SECOND = Placement(1, 2, 0, 1, 1, 2, None, "SLURM")
FACTS = StepFacts(4, "n1", 20017)
ASKED = MachineOptions(ranks_per_node=4)


@pytest.mark.parametrize("source", ["SLURM", "PMI", "PMIx"])
def test_a_task_a_node_is_a_supervisor(source):
    found = as_supervisor(ASKED, replace(SECOND, source=source), FACTS, 1)
    assert found == replace(ASKED, num_nodes=2, node_id=1, main_address="n1", main_port=20017)


def test_what_is_said_by_hand_goes_before_what_slurm_says():
    asked = replace(ASKED, num_nodes=2, main_address="n7", main_port=31000)
    found = as_supervisor(asked, SECOND, FACTS, 1)
    assert found == replace(asked, node_id=1)


def test_without_ranks_per_node_or_slurm_it_is_not():
    assert as_supervisor(MachineOptions(), SECOND, FACTS, 1) is None
    assert as_supervisor(ASKED, Placement.alone(), FACTS, 1) is None
    assert as_supervisor(ASKED, replace(SECOND, source="torchrun"), FACTS, 1) is None


def test_on_one_node_nothing_is_to_be_told():
    assert as_supervisor(ASKED, Placement(0, 1, 0, 1, 0, 1, None, "SLURM"), FACTS, 1) == ASKED


@pytest.mark.parametrize(
    ("placement", "threads", "told"),
    [
        (Placement(3, 4, 1, 2, 1, 2, None, "SLURM"), 1, "SLURM started 4 tasks on 2 nodes"),
        (SECOND, 2, "--ranks-per-node 4 with --threads 2 needs 8 cores, and SLURM gave this task 4"),
        (Placement(0, 1, 0, 1, 0, 1, None, "SLURM"), 2, "needs 8 cores"),
    ],
)
def test_what_does_not_fit_the_allocation_is_refused(placement, threads, told):
    with pytest.raises(UserError) as caught:
        as_supervisor(ASKED, placement, FACTS, threads)
    assert told in str(caught.value)
    assert "HINT: " in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, StepFacts(None, "", 20000)),
        ({"SLURM_STEP_NODELIST": "n1", "SLURM_JOB_ID": "10017"}, StepFacts(None, "n1", 20017)),
        (
            {"SLURM_STEP_NODELIST": "rack2-n[007-009,12],m3", "SLURM_CPUS_PER_TASK": "8"},
            StepFacts(8, "rack2-n007", 20000),
        ),
        ({"SLURM_STEP_NODELIST": "a,b[1-2]", "SLURM_CPUS_PER_TASK": "2"}, StepFacts(2, "a", 20000)),
        ({"SLURM_STEP_NODELIST": "n1", "MASTER_ADDR": "m", "MASTER_PORT": "5000"}, StepFacts(None, "m", 5000)),
    ],
)
def test_facts_of_a_step(environ, expected):
    assert step_facts(environ) == expected
