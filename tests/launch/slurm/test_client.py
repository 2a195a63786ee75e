"""What SLURM says, understood: real lines of it, and small scripts in the place of its commands."""

import os
from functools import partial
from pathlib import Path

import pytest

from support.commands import put_command
from support.slurm.answer_mutations import mutations
from unisono.errors import UnisonoError, UserError
from unisono.launch.slurm import client
from unisono.launch.slurm.command import Answer, plain
from unisono.launch.slurm.job_monitor import exit_code, job_line

RUNNING = (
    "JobId=12 ArrayJobId=12 ArrayTaskId=3 JobName=my job UserId=root(0) GroupId=root(0) MCS_label=N/A JobState=RUNNING "
    "Reason=None Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:07 "
    "TimeLimit=00:30:00 NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumCPUs=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* "
    "TRES=cpu=2,mem=800M,node=2,billing=2 Command=/a b/x.sbatch Comment=unisono StdErr=/a b/12.out StdOut=/a b/12.out"
)
KILLED = "JobId=13 JobName=x JobState=CANCELLED Reason=None Restarts=0 ExitCode=0:15 NodeList=(null) StdOut=/x Power="
INVALID = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a script in the place of a command."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    put = partial(put_command, tmp_path)
    put("sbatch", "exit 1")
    return put


def test_a_job_is_read_from_scontrol(commands):
    commands("scontrol", f"cat <<'END'\n{RUNNING}\n{KILLED}\nEND")
    first, second = client.jobs_of("12")
    assert first == client.Job(
        "12_3", "my job", "RUNNING", "None", 0, 2, "n[1-2]", "00:00:07", "00:30:00", "/a b/12.out", True
    )
    assert (second.number, second.exit_code, second.nodes, second.ours) == ("13", 143, "", False)
    assert (first.over, second.over) == (False, True)


def test_jobs_are_those_of_unisono(commands):
    commands("squeue", "printf '13 (null)\\n12 unisono\\n12 unisono\\n'")
    commands("scontrol", f'[ "$4" = 12 ] && echo "{RUNNING}"')
    assert [job.number for job in client.my_jobs()] == ["12_3"]


def test_tasks_of_an_array_are_listed_once_and_what_is_forgotten_meanwhile_not_at_all(commands):
    fourth = RUNNING.replace("JobId=12 ", "JobId=14 ", 1).replace("ArrayTaskId=3", "ArrayTaskId=4")
    commands(
        "squeue",
        'case "$*" in *%A*) printf "12 unisono\\n14 unisono\\n15 unisono\\n";; '
        '*%F*) printf "12 unisono\\n12 unisono\\n15 unisono\\n";; esac',
    )
    both = f"cat <<'END'\n{RUNNING}\n{fourth}\nEND\n"
    commands("scontrol", f"case $4 in 12) {both};; 14) echo '{fourth}';; *) {INVALID};; esac")
    assert [job.number for job in client.my_jobs()] == ["12_3", "12_4"]


def test_a_number_comes_back_also_from_one_of_several_clusters(commands):
    commands("sbatch", "echo '17;big'")
    assert client.submit(Path("x.sbatch")) == "17@big"


def test_that_cluster_is_asked_for_the_job(commands, tmp_path):
    told = tmp_path / "told"
    commands("scontrol", f'[ "$1 $5" = "--clusters=big 12" ] && echo "{RUNNING}"')
    commands("scancel", f'echo "$*" > {told}')
    commands("squeue", '[ "$1" = "--clusters=big" ] && printf "CLUSTER: big\\nCLUSTER: unisono\\n12 unisono\\n"')
    assert [job.number for job in client.jobs_of("12@big")] == ["12_3@big"]
    assert [job.number for job in client.my_jobs(["big"])] == ["12_3@big"]
    client.cancel("12_3@big")
    assert told.read_text() == "--clusters=big 12_3\n"


def test_whose_job_it_is(commands):
    commands("scontrol", f'echo "{RUNNING.replace("root(0)", "ada(4711)", 1)}"')
    assert client.jobs_of("12")[0].owner == "ada"
    commands("scontrol", f'echo "{RUNNING.replace("root(0)", f"me({os.getuid()})", 1)}"')
    assert client.jobs_of("12")[0].owner == ""


def test_a_refusal_is_told_in_slurms_words(commands):
    commands("sbatch", "echo 'sbatch: error: Requested node configuration is not available' >&2; exit 1")
    with pytest.raises(UserError) as caught:
        client.submit(Path("x.sbatch"))
    for words in ("sbatch refused: ", "Requested node configuration is not available", "HINT: ", "x.sbatch"):
        assert words in str(caught.value)


@pytest.mark.parametrize("body", ["echo 'No jobs in the system'", INVALID])
def test_a_job_that_is_not_there(commands, body):
    commands("scontrol", body)
    with pytest.raises(client.NoSuchJob, match="SLURM knows no job 99"):
        client.jobs_of("99")


@pytest.mark.parametrize(("name", "ask"), [("scontrol", lambda: client.jobs_of("99")), ("srun", client.plugins)])
def test_a_command_that_hangs_is_left(commands, monkeypatch, name, ask):
    monkeypatch.setattr(client, "ASK_S", 0.1)
    commands(name, "exec sleep 30")
    with pytest.raises(client.NoAnswer, match=rf"SLURM does not answer here: {name} said nothing for 0\.1 s"):
        ask()


@pytest.mark.parametrize(
    "said",
    [
        "sinfo: fatal: Could not establish a configuration source",
        "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
        "slurm_load_partitions: Socket timed out on send/recv operation",
    ],
)
def test_a_controller_that_is_away_is_no_refusal(commands, said):
    commands("sinfo", f"echo '{said}' >&2; exit 1")
    with pytest.raises(client.NoAnswer, match=r"SLURM does not answer here: sinfo: (?s:.*)HINT: scontrol ping"):
        client.call(["sinfo"])


def test_of_many_lines_the_last_is_told_without_the_name_of_the_program(commands):
    tries = "squeue: error: resolve_ctls_from_dns_srv: Unknown host\nsqueue: error: fetch_config: failed"
    commands("squeue", f"echo '{tries}\nsqueue: fatal: Could not establish a configuration source\n' >&2; exit 1")
    with pytest.raises(client.NoAnswer) as caught:
        client.my_jobs()
    told, _ = str(caught.value).split("\nHINT: ")
    assert told == "SLURM does not answer here: squeue: Could not establish a configuration source"


def test_a_job_that_may_have_got_there_is_to_be_looked_for(commands, tmp_path):
    commands("sbatch", "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1")
    with pytest.raises(client.NoAnswer, match="HINT: unisono jobs tells whether"):
        client.submit(tmp_path / "x.sbatch")


def test_plugins_of_srun(commands):
    commands("srun", "printf 'MPI plugin types are...\\n\\tpmix\\n\\tnone\\nspecific pmix plugin versions: pmix_v4\\n'")
    assert client.plugins() == ["pmix", "none"]


def test_without_slurm_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not client.available()
    with pytest.raises(UserError, match="no SLURM on this machine"):
        client.my_jobs()


@pytest.fixture
def answers(commands, monkeypatch):
    """Has commands answer with bytes, without starting one."""
    said = {}
    monkeypatch.setattr(client, "run_command", lambda words, timeout_s: Answer(0, plain(said[words[0]]), ""))
    return said


def test_no_answer_of_scontrol_is_a_traceback(answers):
    jobs, refusals = 0, []
    for answers["scontrol"] in mutations(f"{RUNNING}\n{KILLED}\n", seed=17, count=400):
        try:
            for job in client.jobs_of("12"):
                jobs += 1
                assert 0 <= exit_code(job) <= 255
                assert job_line(job)
                assert all(
                    "\n" not in text and "\x1b" not in text for text in vars(job).values() if isinstance(text, str)
                )
        except UnisonoError as error:
            refusals.append(len(str(error)))
    assert jobs > 100, "most of them still have jobs"
    assert 0 < max(refusals) < 400, "an excerpt is shown, however long the answer"


def test_no_answer_of_squeue_or_sbatch_is_a_traceback(answers):
    answers["scontrol"] = RUNNING.encode()
    refusals = []
    for answers["squeue"] in mutations("13 (null)\n12 unisono\n", seed=18, count=200):
        try:
            client.my_jobs()
        except client.NoAnswer as error:
            refusals.append(error.reason.split(":")[0])
    assert set(refusals) == {"squeue answered, but not as expected"}
    refusals.clear()
    for answers["sbatch"] in mutations("17;big\n", seed=19, count=200):
        try:
            assert client.split_number(client.submit(Path("-x.sbatch")))
        except client.NoAnswer as error:
            refusals.append(str(error).split("HINT: ")[1])
    again = "unisono jobs tells whether it got there all the same; if not, later: sbatch ./-x.sbatch"
    assert set(refusals) == {again}


def test_a_job_whose_line_is_not_understood_is_not_taken_for_one_that_is_gone(answers):
    answers["scontrol"] = b"JobId=12 JobNa"
    with pytest.raises(client.NoAnswer, match="scontrol answered, but not as expected: JobId=12 JobNa"):
        client.jobs_of("12")


def test_what_is_no_number_of_a_job_or_name_of_a_cluster_is_not_asked_for(commands):
    for number in ("", "--help", "1_2_3", "\uff11", "17@", "17@-x", "9" * 99, "17\n"):
        with pytest.raises(UserError, match="is no number of a job"):
            client.jobs_of(number)
    with pytest.raises(UserError, match="'--help' is no name of a cluster"):
        client.my_jobs(["--help"])


def test_a_script_is_never_an_option_of_sbatch(commands, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands("sbatch", f'[ "$*" = "--parsable {tmp_path}/--wrap=id" ] && echo 17')
    assert client.submit(Path("--wrap=id")) == "17"
