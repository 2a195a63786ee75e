"""Inputs for `fuzz.py`: what SLURM's programs may answer, and names that a shell or sbatch takes for something else.

The one idea: scripts stand for SLURM's programs. The one for sbatch runs the job's script, with the training left out,
so a name that has become a command leaves its mark.

    given = make_slurm(random, sandbox)
"""

from random import Random

from fuzz_files import VALID
from fuzz_mutations import mutate_bytes
from fuzz_sandbox import MARK, Sandbox
from fuzz_worker import ACCEPTED, EITHER, Input

_JOB = (
    "JobId=17 JobName=mine UserId=root(0) GroupId=root(0) JobState=COMPLETED Reason=None Restarts=0 ExitCode=0:0 "
    "RunTime=00:00:07 TimeLimit=01:00:00 NodeList=n[1-2] StdOut=slurm-17.out Comment=unisono\n"
)
ANSWERS = {
    "sinfo": b"debug*|2|8|16000\nlong|3|64+|256000+\n", "scontrol": _JOB.encode(), "squeue": b"17 unisono\n",
    "sbatch": b"17\n",
    "srun": b"MPI plugin types are...\n    none\n    pmix\n", "scancel": b"", "sacct": b"", "sleep": b"",
}  # fmt: skip
"""What each program of SLURM's prints when all is well."""
ODD_ANSWERS = (
    b"\n", b"|||\n", b"debug*|x|y|z\n", b"debug*|1|8\n", b"JobId=17\n",
    b"JobId=17 ExitCode=a:b Restarts=x UserId=()\n", b"JobId=\n", b"99999999999999999999 unisono\n",
    b"17;big\n", b"\xff\xfe\n", b"\x1b[2J\n", b"a" * 100_000, b"17 unisono\n" * 3000, "٣|٣|٣|٣\n".encode(),
    b"debug*|1e9|8|N/A\n", b"Warning: x\n17\n", b"-1\n",
)  # fmt: skip
NAMES = (
    f"$(touch {MARK})", f"`touch {MARK}`", f"a\ntouch {MARK}\n", f"a'; touch {MARK}; '", f'a"; touch {MARK}; "',
    f"--wrap=touch {MARK}", "-n", "a b", "é", "\udcff",
    "a\r", "\x1b[2J", "#SBATCH", f"\n#SBATCH --wrap=touch {MARK}", f"$'\\n'touch {MARK}", "%j", "a" * 200,
    "\\", "*", "~", "a\tb",
)  # fmt: skip
"""Names that a shell, or sbatch, might take for something else."""

NAMED = (
    "--job-name", "--account", "--partition", "--out", "--venv", "--module", "--interface", "--time", "--mem",
    "--output",
)  # fmt: skip


def make_slurm(random: Random, sandbox: Sandbox) -> Input:
    """SLURM's programs are scripts that print odd lines; names try to become commands."""
    answers = dict(ANSWERS)
    way, about = random.choice(("jobs", "cancel", "submit", "submit", "names", "names", "follow")), "as it is"
    valid = random.random() < VALID
    if not valid and way != "names":
        name = random.choice(("sinfo", "scontrol", "scontrol", "squeue", "sbatch", "srun"))
        answers[name], about = (
            (random.choice(ODD_ANSWERS), "odd") if random.random() < 0.4 else mutate_bytes(random, answers[name])
        )
        about = f"{name}: {about}"
    failing = "" if valid or random.random() < 0.8 else random.choice(list(ANSWERS))
    for name, text in answers.items():
        (sandbox.root / "bin" / f"{name}.txt").write_bytes(text)
        program = sandbox.root / "bin" / name
        program.write_text(_PROGRAM.format(code=random.choice((1, 3, 255)) if name == failing else 0, mark=MARK))
        program.chmod(0o755)
    recipe, more = "a.toml", []
    if way == "names" and not valid:
        recipe = f"{random.choice(NAMES)}.toml" if random.random() < 0.6 else recipe
        more = [f"{name}={random.choice(NAMES)}" for name in random.sample(NAMED, random.randrange(3))]
        about = f"{recipe!r} {more!r}"[:100]
    lines = (sandbox.template / "sync" / "recipe.toml").read_text().splitlines()
    if "/" not in recipe:
        (sandbox.work / recipe).write_text("\n".join(line for line in lines if not line.startswith("out =")) + "\n")
    memory = [] if any(word.startswith("--mem=") for word in more) else ["--mem", "1G"]
    submit = ("submit", *memory, *more, *(["--"] if recipe.startswith("-") else []), recipe)
    followed = ("submit", "--follow", "--poll-s", "0.01", "--mem", "1G", recipe)
    argv = {"jobs": ("jobs",), "cancel": ("cancel", "17"), "follow": followed}.get(way, submit)
    path = f"{sandbox.root / 'bin'}:/usr/bin:/bin"
    allowed = ACCEPTED if valid else EITHER | {1}  # 1: SLURM does not answer
    if way == "follow" and not valid:
        allowed = frozenset(range(256))  # the job's
    return Input(argv, allowed, f"{way}: {about}", environment={"PATH": path})


_PROGRAM = """#!/bin/bash
me=${{0##*/}}
echo >> "$0.calls"
if [ "$me" = sbatch ]; then
    for word; do script=$word; done
    case "$script" in -*) /usr/bin/touch {mark} ;; esac
    # The job: with python and SLURM's variables replaced, whatever else it runs shows.
    export SLURM_JOB_NODELIST=n1 SLURM_JOB_ID=17 SLURM_JOB_NUM_NODES=1 SLURM_CPUS_PER_TASK=1
    job=$(/usr/bin/sed -E 's/^python=.*/python=true/; s/^\\. .*activate.*//' < "$script")
    /usr/bin/timeout 20 /bin/bash -c "$job" >/dev/null 2>&1
fi
# An answer that would keep somebody waiting is given a few times only.
if [ "$me" = scontrol ] && [ "$(/usr/bin/wc -l < "$0.calls")" -gt 3 ]; then
    echo 'JobId=17 JobState=COMPLETED ExitCode=0:0 Comment=unisono'
    exit 0
fi
/usr/bin/cat "$0.txt"
[ {code} = 0 ] || echo "{code}: Unable to contact slurm controller" >&2
exit {code}
"""
