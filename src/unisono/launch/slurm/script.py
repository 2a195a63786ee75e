"""The sbatch script of a training: a text that a person can read, change and submit without unisono.

The one idea: the script is the job. It sets up, shows where it runs, starts the ranks by the launcher that was chosen,
and when they were asked to end (exit code 75: time limit, preemption) queues the job again; then `unisono train` finds
the run directory of the same job and goes on from its newest snapshot.

    print(write_script(Script(options, layout, step, command="unisono submit r2", run="runs/r2-$SLURM_JOB_ID")))

Whom the requeue must not hit: a job that a user cancelled, for SLURM would start it again; so it is asked for only
while the job is RUNNING. In an array it names the task, as 17_3: the number of one of the tasks is that of the whole
array, and requeueing that would end the others. Nor one that got no further since its last start: what fails there will
fail again.
"""

import re
import sys
from dataclasses import dataclass
from typing import final

from unisono.environment.main_address import FIRST_PORT, PORTS
from unisono.environment.os_environ import SECRET, THREADS
from unisono.launch.slurm.options import JobOptions, sbatch_words, warning_s
from unisono.launch.slurm.quoting import as_path, check_plain, is_plain, quote, quote_directive
from unisono.launch.slurm.steps import Layout, Step, interpreter

MARK = "unisono"
"""The comment of our jobs, by which `unisono jobs` knows them."""

_BANNER = """\
echo "unisono: job $job on $SLURM_JOB_NODELIST, start $((${{SLURM_RESTART_COUNT:-0}} + 1))"
echo "nodes: $SLURM_JOB_NUM_NODES, tasks: ${{SLURM_NTASKS:-?}}, cpus per task: $SLURM_CPUS_PER_TASK, ranks: {ranks}"
echo "main address: $MASTER_ADDR:$MASTER_PORT, run directory: $run\""""

_ACTIVATE = """\
. {activate} || {{
    echo "unisono: the environment of "{activate}" cannot be activated on ${{HOSTNAME:-this node}}" >&2
    echo "HINT: give one that its nodes have: --venv DIR" >&2
    exit 2
}}"""

_CHECK = """\
if ! {python} -m unisono --version >/dev/null; then  # before nodes are held for ranks that would all fail
    echo "unisono: $python cannot run unisono on ${{HOSTNAME:-this node}}: see why above" >&2
    echo "HINT: name an environment that has it: --venv DIR, --module NAME, --setup LINE" >&2
    exit 2
fi"""

_RUN = """\
# Ranks that are asked to end save a snapshot and leave with exit code 75. This shell is asked by USR1, before the time
# limit; when the job is cancelled or preempted, ranks get TERM from SLURM itself, and this shell waits for them.
asked='' launched='' late=''
running() {{ [ "$(squeue -h -j "$job" -o %T)" = RUNNING ]; }}  # a job that was cancelled is called that no more
newest() {{ ls -- "$run/snapshots" 2>/dev/null | sed -nE 's/^[0-9]+-([0-9]+)$/\\1/p' | sort | tail -n 1; }}
trap 'asked=yes; if [ -n "$launched" ]; then {asks} || true; else late=yes; fi' USR1
trap '' TERM
before=$(newest)
launch {arguments}&
launched=$!
while kill -0 "$launched" 2>/dev/null; do
    sleep 1 >/dev/null 2>&1 &
    wait $! || true  # not for longer: bash may put a signal off until a wait ends
    if [ -n "$late" ]; then  # asked before anybody was there: by now there is
        late=''
        {asks} || true
    fi
done
code=0
wait "$launched" || code=$?
if [ "$code" = 137 ]; then
    echo "unisono: a rank was killed (SIGKILL), most often for memory: the lines above name it." >&2
    echo "HINT: this job asked for {memory} a node; submit it with more: --mem" >&2
elif [ "$code" = 75 ] && [ -z "$asked" ] && running; then
    echo "unisono: if a line above says Killed: most often that is for memory" >&2
    echo "HINT: this job asked for {memory} a node; if so, submit it with more: --mem" >&2
fi"""

_REQUEUE = """\
# Not a job that was cancelled: SLURM would start it again.
if [ "$code" = 75 ] || {{ [ "$code" != 0 ] && [ -n "$asked" ]; }}; then
    # What fails at the same place in two starts, one after the other, will fail in the next one.
    if [ -z "$asked" ] && [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ "$(newest)" = "$before" ]; then
        echo "unisono: job $job got no further since its last start, and is not queued again: see why above" >&2
    elif [ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && running; then
        echo "unisono: job $job is queued again, and will go on in $run"
        scontrol requeue "$job" ||
            printf 'unisono: no, SLURM refused that; to go on: unisono submit --resume=%q\\n' "$run" >&2
    fi
fi"""

_SECRET = [
    "# Nodes prove it to each other. Made anew at each start; neither in a file nor on a command line, nor in a trace.",
    f"{{ {SECRET}=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n'); export {SECRET}; }} 2>/dev/null",
]


@final
@dataclass(frozen=True)
class Script:
    """All that is in it."""

    options: JobOptions
    layout: Layout
    step: Step
    command: str
    """By which it was made."""
    run: str
    """The run directory, as a word of shell."""
    arguments: tuple[str, ...] = ('--out="$run"',)
    """More arguments of `unisono train`, as words of shell: they differ from job to job."""


def write_script(script: Script) -> str:
    """The text."""
    options, arguments = script.options, " ".join(script.arguments)
    command = "".join(char if is_plain(char) else "?" for char in script.command)
    head = ["#!/bin/bash", f"# Made by: {command}", *(f"#SBATCH {line}" for line in _directives(script))]
    parts = [
        "\n".join(head),
        "\n".join(["set -eu", *_environment(script)]),
        _BANNER.format(ranks=script.layout.size),
        "\n".join(["launch() {", "    trap - TERM", *(f"    {line}" for line in script.step.lines), "}"]),
        _RUN.format(
            asks=script.step.asks, arguments=f"{arguments} " if arguments else "", memory=options.mem or "no memory"
        ),
        *([_REQUEUE.format(most=options.max_requeues)] if options.max_requeues else []),
        'exit "$code"',
    ]
    return "\n\n".join(parts) + "\n"


def _directives(script: Script) -> list[str]:
    options, step = script.options, script.step
    values = {
        "job-name": options.job_name,
        "comment": MARK,
        "nodes": options.nodes,
        "ntasks-per-node": step.tasks_per_node,
        "cpus-per-task": step.cpus_per_task,
        "mem": options.mem,
        "time": options.time,
        "partition": options.partition,
        "account": options.account,
        "array": options.array,
        "output": options.output or ("slurm-%A_%a.out" if options.array else "slurm-%j.out"),
        "error": options.error,
        "open-mode": "append",
    }
    lines = [f"--{name}={quote_directive(str(value))}" for name, value in values.items() if value != ""]
    if options.max_requeues:
        lines += ["--requeue", f"--signal=B:USR1@{warning_s(options)}"]
    else:
        lines.append("--no-requeue")
    return [*lines, *(" ".join(map(quote_directive, sbatch_words(line))) for line in options.sbatch)]


def _environment(script: Script) -> list[str]:
    options = script.options
    lines = [f"module load {quote('--module', name)}" for name in options.module]
    if options.venv:
        lines.append(_ACTIVATE.format(activate=quote("--venv", as_path(options.venv) + "/bin/activate")))
    lines += options.setup
    return [
        # Code of modules, conda and others is not written for shells that refuse names without a value.
        *(["set +u", *lines, "set -u"] if lines else []),
        f"python={'python' if options.venv or options.module else quote('the path of Python', sys.executable)}",
        _CHECK.format(python=interpreter()),
        "export " + " ".join(f"{name}={script.layout.threads}" for name in THREADS),
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))  # jobs that share a node do not share it",
        "export MASTER_ADDR MASTER_PORT",
        "export SLURM_EXPORT_ENV=ALL  # after sbatch --export=NONE, srun would keep from ranks what is set here",
        *(_SECRET if script.layout.nodes > 1 else []),
        f"job={_number(options.array)}",
        f"run={script.run}",
    ]


def _number(array: str) -> str:
    return "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if array else "$SLURM_JOB_ID"


def run_directory(name: str, out: str, array: str) -> str:
    """As a word of shell: `out`, or one named after the job; in arrays with the number of the task."""
    number = "$job" if not out else "$SLURM_ARRAY_TASK_ID" if array else ""
    place = re.sub(r'(["\\$`])', r"\\\1", check_plain("--out", out or f"runs/{name}"))
    return f'"{place}{number and f"-{number}"}"'
