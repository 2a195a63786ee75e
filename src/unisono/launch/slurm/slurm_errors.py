"""What SLURM's commands mean when they refuse or do not answer: the one place where those texts are read.

>>> is_unknown_job("slurm_load_jobs error: Invalid job id specified")
True

Limits: as SLURM words them since 20.11.
"""

import re

_ABSENT = re.compile(
    "Unable to contact|timed out|Zero Bytes|Connection refused|try again|configuration source|Communication connection",
    re.IGNORECASE,
)
_NO_JOB = re.compile("Invalid job id|No jobs in the system")


def is_absent(text: str) -> bool:
    """Whether the cluster could not be asked: it may be possible later."""
    return _ABSENT.search(text) is not None


def is_unknown_job(text: str) -> bool:
    """Whether there is no job of that number, or no more."""
    return _NO_JOB.search(text) is not None
