"""`unisono jobs`: what became of the jobs that `unisono submit` submitted."""

from unisono.terminal import print


def jobs(*, clusters: str = "") -> None:
    """List your SLURM jobs that unisono submitted: those that wait or run, and those that ended lately.

    Parameters
    ----------
    clusters
        Of these clusters, separated by commas, where jobs were submitted with --sbatch=--clusters=...; the one here if
        empty.
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
