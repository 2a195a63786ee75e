"""Where rank 0 is, as every rank finds it out by itself from what mpirun or srun says."""

import pytest

from unisono.environment.main_address import FIRST_PORT, PORTS, first_host, job_port, main_address
from unisono.environment.os_environ import fill_torch_variables
from unisono.environment.process_rank import Placement
from unisono.errors import UserError

TASK = Placement(2, 4, 0, 2, 1, 2, None, "SLURM")
STEP = {"SLURM_STEP_NODELIST": "n[07-09],m3", "SLURM_JOB_NODELIST": "n[06-09],m3", "SLURM_JOB_ID": "17"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3", "PMIX_NAMESPACE": "prterun-n1-1@1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "first"),
    [("", ""), ("n1", "n1"), ("n1,n2", "n1"), ("r2-n[007-009,12],m3", "r2-n007"), ("a,b[1-2]", "a")],
)
def test_the_first_host_of_a_list(listed, first):
    assert first_host({"SLURM_STEP_NODELIST": listed}) == first


def test_steps_that_share_a_node_do_not_share_a_port():
    jobs = [{"SLURM_JOB_ID": "17", "SLURM_STEP_ID": step} for step in ("0", "1")]
    assert [job_port(facts) for facts in jobs] == [20017, 20018]
    assert job_port({"SLURM_JOB_ID": "12345678"}) == 25678
    assert job_port({"SLURM_JOB_ID": "x"}) == FIRST_PORT


@pytest.mark.parametrize(
    ("facts", "source", "expected"),
    [
        (STEP, "SLURM", "n07:20017"),
        (STEP, "Open MPI", "n06:20017"),  # the step is that of mpirun's daemons
        (STEP | {"MASTER_ADDR": "head", "MASTER_PORT": "31000"}, "SLURM", "head:31000"),
        (STEP | {"MASTER_ADDR": "fd00::1"}, "SLURM", "[fd00::1]:20017"),
        ({"MASTER_ADDR": "head"}, "PMI", "head:29500"),
    ],
)
def test_several_machines(facts, source, expected):
    assert main_address(facts, Placement(2, 4, 0, 2, 1, 2, None, source)) == expected


def test_one_machine_needs_no_name_and_jobs_of_mpirun_have_ports_of_their_own():
    here = Placement(1, 3, 1, 3, None, None, None, "Open MPI")
    found = [main_address({"PMIX_NAMESPACE": f"prterun-{job}@1"}, here) for job in range(20)]
    ports = {int(address.removeprefix("127.0.0.1:")) for address in found}
    assert len(ports) > 15
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)


def test_several_machines_that_nobody_names():
    with pytest.raises(UserError, match="Open MPI started 4 ranks on several machines") as caught:
        main_address({}, Placement(2, 4, 0, 2, 1, 2, None, "Open MPI"))
    assert "MASTER_ADDR" in caught.value.hint


def test_torch_is_given_what_is_missing():
    environ = dict(OPEN_MPI)
    fill_torch_variables(environ)
    assert {name: environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3",
    }  # fmt: skip
    assert environ["MASTER_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "2"},  # torch says what is missing
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1", **OPEN_MPI},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},  # the script of sbatch is no rank
    ],
)
def test_what_others_have_said_stays(environ):
    given = dict(environ)
    fill_torch_variables(environ)
    assert environ == given
