"""`unisono cancel`: ends jobs that `unisono submit` submitted."""

from unisono.errors import UserError
from unisono.terminal import print


def cancel(job: str, /, *jobs: str) -> None:
    """End SLURM jobs that unisono submitted. Ranks are asked first: a run that goes on to save can be resumed.

    Parameters
    ----------
    job
        Its number, 17, or 17_3 for one task of an array; 17@big on a cluster called big.
    jobs
        More of them.
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
