"""`unisono jobs` and `unisono cancel`: what became of the jobs that `unisono submit` submitted; ending them."""

from unisono.errors import UserError
from unisono.safe_print import print


def jobs(*, clusters: str = "") -> None:
    """List your SLURM jobs that unisono submitted: those that wait, run, or ended a short time ago.

    Parameters
    ----------
    clusters
        List jobs of these clusters, separated by commas (submitted with --sbatch=--clusters=...). Empty: this cluster.
    """
    from rich.table import Table

    from unisono.launch.slurm import client
    from unisono.report.terminal.console import Console

    found = client.my_jobs(clusters.split(","))
    if not found:
        print("No jobs of unisono submit that SLURM knows of.")
        return
    table = Table("job", "name", "state", "where or why", "time", "limit", "restarts", "exit", box=None, pad_edge=False)
    for job in found:
        where = job.nodes or ("" if job.reason == "None" else job.reason)
        code = str(job.exit_code) if job.over else ""
        table.add_row(job.number, job.name, job.state, where, job.run_time, job.time_limit, str(job.restarts), code)
    Console(highlight=False, soft_wrap=True, markup=False).print(table)


def cancel(job: str, /, *jobs: str) -> None:
    """End SLURM jobs that unisono submitted. Ranks get a signal first: a run that saves a snapshot then can be resumed.

    Parameters
    ----------
    job
        The number of a job: 17, or 17_3 for one task of an array; 17@big on a cluster called big.
    jobs
        More jobs.
    """
    from unisono.launch.slurm import client

    found = {number: client.jobs_of(number) for number in (job, *jobs)}
    for number, parts in found.items():
        if not all(part.ours for part in parts):
            raise UserError(f"job {number} was not submitted by unisono", hint=f"end it with scancel {number}")
        if owner := next((part.owner for part in parts if part.owner), ""):
            raise UserError(
                f"job {number} is {owner}'s, not yours",
                hint=f"unisono jobs lists yours; an administrator may end it with scancel {number}",
            )
    for number, parts in found.items():
        if all(part.over for part in parts):
            print(f"job {number} is over already: {', '.join(sorted({part.state for part in parts}))}")
            continue
        client.cancel(number)
        print(f"job {number} was asked to end; unisono jobs tells when it has")
