"""What `unisono submit` was asked for, made into a script: the recipe checked, ranks laid out, memory estimated.

    Submission("r2", {"epochs": 3}, JobOptions(nodes=2)).script()

Limits: what is checked is checked here, on the login node: the environment that the job sets up may lack something.
"""

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from unisono.data.sources import must_be_fetched
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user
from unisono.launch.connect import installed, require
from unisono.launch.launcher_commands import find_program, is_open_mpi, mpi_problem
from unisono.launch.slurm import client
from unisono.launch.slurm.capacity import WantedNodes, check_room, megabytes
from unisono.launch.slurm.options import JobOptions, check, check_name
from unisono.launch.slurm.quoting import as_path, check_plain, quote
from unisono.launch.slurm.script import Script, run_directory, write_script
from unisono.launch.slurm.steps import Layout, Step, make_step
from unisono.os_limits import MIB
from unisono.recipe import OPTIONS, Recipe, flag
from unisono.recipe.reading import load
from unisono.storage.resume import SNAPSHOTS, as_saved, named_in, recipe_of
from unisono.storage.snapshots.snapshot import newest
from unisono.study.provenance import command_line
from unisono.training.checks import estimate_bytes
from unisono.training.job import prepare
from unisono.trust import Trust, code_of

_NEEDS = {"srun": "mpi", "mpirun": "mpi", "torchrun": "gloo", "accelerate": "gloo"}
"""Launcher -> the transport that its ranks use."""


@final
@dataclass(frozen=True)
class Submission:
    """A recipe, what is given on top of it, and the job around it."""

    source: str
    overrides: dict[str, Any]
    job: JobOptions
    trusted: bool = False
    """The user trusts its code: the job is given --trust."""
    dry_run: bool = False
    """Code of the user's is not run, and no data are fetched, so memory that depends on them is not estimated."""

    @property
    def name(self) -> str:
        """The name of the job, and of files that belong to it."""
        return self.job.job_name or Path(self.source).stem or "unisono"

    @property
    def _resumes(self) -> str:
        """The run that is gone on with; empty: a new one."""
        return str(self.overrides.get("resume", ""))

    def script(self) -> str:
        """The text; a `UserError` if something does not fit."""
        job, step = self.job, self._step
        check_name(self.name)
        filled = replace(job, job_name=self.name, mem=self._memory, venv=job.venv or environment_here())
        if self._resumes:
            run = quote("--resume", self._resumes)
        else:
            run = run_directory(self.name, self.overrides.get("out", ""), job.array)
        return write_script(Script(filled, self._layout, step, command_line(), run, self._arguments()))

    def check_cluster(self) -> str:
        """A `UserError` if the cluster here lacks what the job needs. What to say if it does not tell."""
        launcher, plugin, _ = self._launching
        if launcher == "srun" and (found := client.plugins()) and plugin not in found:
            raise UserError(
                f"SLURM here has no --mpi={plugin}; it has: {', '.join(found)}",
                hint="use --launcher mpirun or torchrun; --mpi pmi2 is for MPICH, pmix for Open MPI",
            )
        cores = self._step.tasks_per_node * self._step.cpus_per_task
        return check_room(WantedNodes(self.job.partition, self.job.nodes, cores, megabytes(self._memory)))

    @property
    def mpi_note(self) -> str:
        """What to say of an MPI that ranks of the job would not find; what the job sets up first may have one."""
        launcher, plugin, program = self._launching
        job = self.job
        if launcher not in ("srun", "mpirun") or plugin == "none" or job.module or job.venv or job.setup:
            return ""
        if self.recipe.strategy.transport not in ("auto", "mpi"):
            return ""
        if not (why := mpi_problem([program, "-n", "1"] if launcher == "mpirun" else [])):
            return ""
        others = "torchrun" if launcher == "mpirun" else "mpirun or torchrun"
        return (
            f"Note: mpi4py finds no MPI library here ({why}): ranks that {launcher} starts fail at once unless their "
            f"nodes have one.\nHINT: --launcher {others}; or name it: --setup 'export MPI4PY_LIBMPI=/path/to/libmpi.so'"
        )

    @cached_property
    def _launching(self) -> tuple[str, str, str]:
        check(self.job)
        return how_to_launch(self.job)

    @cached_property
    def _step(self) -> Step:
        launcher, plugin, program = self._launching
        return make_step(launcher, self._layout, self._words(), plugin, program)

    @cached_property
    def _memory(self) -> str:
        if self.job.mem or (self.dry_run and (self.code or self.data_away)):
            return self.job.mem
        return _memory(self.as_in_job.with_options(ranks=self._layout.size), self._layout.ranks)

    @property
    def code(self) -> list[str]:
        """What the job runs of the user's own."""
        return list(code_of(self.as_in_job).values())

    @property
    def data_away(self) -> bool:
        """Whether its data would have to be fetched to be looked at."""
        return must_be_fetched(self.as_in_job.data.name, self.as_in_job.data.directory)

    @property
    def trust(self) -> Trust:
        """Which of its code may run."""
        source = self.source or (named_in(self._resumes) if self._resumes else "")
        return Trust.of(self.recipe, self.overrides, source, trusted=self.trusted)

    @cached_property
    def as_in_job(self) -> Recipe:
        """With files where the job will find them: those of a run that is resumed may be elsewhere."""
        run = self.recipe.faults.resume
        return as_saved(self.recipe, newest(expand_user(run) / SNAPSHOTS).snapshot if run else None)

    @cached_property
    def recipe(self) -> Recipe:
        """Checked as far as it can be without its data."""
        if self._resumes and not self.source:
            return recipe_of(self._resumes, self.overrides)
        return load(self.source, self.overrides)

    @cached_property
    def _layout(self) -> Layout:
        recipe = self.recipe
        nodes, ranks, given = self.job.nodes, self.job.ranks_per_node, self.overrides.get("ranks")
        if not ranks:
            ranks, rest = divmod(recipe.ranks.count, nodes)
            if rest:
                raise UserError(
                    f"--ranks {recipe.ranks.count} cannot be spread over --nodes {nodes}", hint="give --ranks-per-node"
                )
        elif given not in (None, nodes * ranks):
            raise UserError(
                f"--ranks {given}, but --nodes {nodes} x --ranks-per-node {ranks} is {nodes * ranks}",
                hint="leave --ranks out",
            )
        return Layout(nodes, ranks, recipe.ranks.threads)

    def _words(self) -> list[str]:
        """The arguments of `unisono train` that are the same whatever job it is."""
        words = [as_path(check_plain("the recipe's name", self.source))] if self.source else []
        for name, value in self.overrides.items():
            check_plain(flag(name), str(value))
            if name in ("ranks", "out"):
                continue
            if isinstance(value, bool):
                words.append(flag(name) if value else flag(name).replace("--", "--no-", 1))
            elif str(value).startswith("-"):
                words.append(f"{flag(name)}={value}")
            else:
                words += [flag(name), str(value)]
        words += ["--trust"] if self.trusted else []
        words += ["--interface", self.job.interface] if self.job.interface else []
        words += ["--join-timeout", f"{self.job.join_timeout:g}"] if self.job.join_timeout else []
        return words

    def _arguments(self) -> tuple[str, ...]:
        """Those that differ from job to job."""
        arguments = () if self._resumes else ('--out="$run"',)
        if not self.job.array:
            return arguments
        if self._resumes:
            raise UserError("--array with --resume: all tasks would go on with one run", hint="leave one of them out")
        name = self.job.array_option.removeprefix("--").replace("-", "_")
        whole = [entry.name for entry in OPTIONS.values() if entry.kinds == (int,) and entry.name != "ranks"]
        if name not in whole:
            raise unknown_name("--array-option", self.job.array_option, [flag(each) for each in whole])
        if name in self.overrides:
            raise UserError(
                f"{flag(name)} {self.overrides[name]} with --array {self.job.array}, whose tasks give {flag(name)}",
                hint="leave it out, or give another --array-option",
            )
        return (*arguments, f'{flag(name)} "$SLURM_ARRAY_TASK_ID"')


def environment_here() -> str:
    """The virtual environment that this process is in; empty if there is none that can be activated."""
    inside = sys.prefix != sys.base_prefix and (Path(sys.prefix) / "bin/activate").exists()
    return sys.prefix if inside else ""


def how_to_launch(job: JobOptions) -> tuple[str, str, str]:
    """The launcher, srun's --mpi, and which mpirun."""
    launcher, plugin = job.launcher, job.mpi
    if launcher == "auto" and job.nodes == 1 and plugin == "auto":
        launcher = "unisono"
    elif launcher == "auto":
        launcher = "srun" if installed("mpi") or plugin == "none" else "torchrun"
    # An environment that the job sets up may have what this one lacks.
    if launcher in _NEEDS and plugin != "none" and not (job.module or job.venv):
        require(_NEEDS[launcher])
    program = find_program("mpirun")
    if plugin == "auto":
        plugin = "pmix" if program is None or is_open_mpi(program) else "pmi2"
    return launcher, plugin, "mpirun" if job.venv or job.module else program or "mpirun"


def _memory(recipe: Recipe, ranks: int) -> str:
    try:
        job = prepare(recipe)
    except UserError as error:
        note = "(The recipe was looked at to estimate its memory; --mem SIZE leaves that out.)"
        raise UserError(f"{error}\n{note}") from None
    return f"{estimate_bytes(job, ranks) // MIB}M"
