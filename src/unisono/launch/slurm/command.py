"""A command of SLURM's, run to its end: bounded in time and in output; its answer as plain text, and what it means.

    answer = run_command(["sinfo", "--version"], 10.0); answer.code, answer.out

    >>> is_unknown_job("slurm_load_jobs error: Invalid job id specified")
    True

The one idea: whatever a command prints (escapes of a terminal, bytes that are no text, gigabytes), what comes back is
lines that can be searched and shown. Here is also the one place where texts are read by which SLURM refuses or says
that the cluster cannot be asked.

Limits: sbatch keeps the locale of its caller, because the job gets sbatch's environment. The texts are as SLURM words
them since 20.11.
"""

import errno
import os
import re
import selectors
import subprocess
import time
from dataclasses import dataclass
from typing import IO, final

from unisono.environment.os_environ import untranslated, without_secret

MOST_BYTES = 1 << 26
"""scontrol tells about 2 kB of a job: an array of ten thousand tasks is less."""
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_ABSENT = re.compile(
    "Unable to contact|timed out|Zero Bytes|Connection refused|try again|configuration source|Communication connection",
    re.IGNORECASE,
)
_NO_JOB = re.compile("Invalid job id|No jobs in the system")


@final
@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def run_command(words: list[str], timeout_s: float) -> Answer:
    """Runs it; an `OSError` if it cannot be started, `TimeoutError` among them if it takes too long."""
    deadline = time.monotonic() + timeout_s
    environment = without_secret() if words[0] == "sbatch" else untranslated()
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            out, err = _read((process.stdout, process.stderr), deadline)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            process.kill()
            if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
                raise TimeoutError(errno.ETIMEDOUT, f"said nothing for {timeout_s:g} s", words[0]) from None
            raise
    return Answer(code, plain(out), plain(err))


def plain(text: bytes) -> str:
    """As lines without escapes of a terminal; a mark in the place of what cannot be shown."""
    shown = _ESCAPE.sub("", text.decode(errors="replace").replace("\r\n", "\n"))
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", shown)


def _read(files: tuple[IO[bytes], ...], deadline: float) -> tuple[bytes, ...]:
    found = {file.fileno(): bytearray() for file in files}
    with selectors.DefaultSelector() as selector:
        for fd in found:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                found[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                if len(found[key.fd]) > MOST_BYTES:
                    raise OSError(errno.EFBIG, f"said more than {MOST_BYTES:,} bytes")
    return tuple(bytes(text) for text in found.values())


def is_absent(text: str) -> bool:
    """Whether the cluster could not be asked: it may be possible later."""
    return _ABSENT.search(text) is not None


def is_unknown_job(text: str) -> bool:
    """Whether there is no job of that number, or no more."""
    return _NO_JOB.search(text) is not None
