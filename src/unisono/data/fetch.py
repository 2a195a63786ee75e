"""Fetching one file over HTTP so that it is either whole, or not there under its name.

The one idea: bytes go into NAME.part, which is checked, then renamed. What a broken connection left is kept, and the
next attempt asks the server for the rest only (Range). One process at a time works in a directory (a lock that the
kernel drops when its holder dies); a process that waited finds the file there.

    fetch(Download("https://example.org/a.gz", Path("a.gz"), most_bytes=1 << 20), verify=lambda path: "")

Limits: http and https; a redirect leads to https, or from http to http. Proxies and certificates as Python's urllib
finds them. The directory's file system must have flock (NFS has; some Lustre mounts do not: an error says so).
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from unisono.data.dataset import Progress
from unisono.errors import UserError
from unisono.files import append_file, move_file, write_all
from unisono.locks import FileLock
from unisono.safe_print import print

ATTEMPTS = 3
TOLD_S = 5.0
"""After so long it is said who is waited for."""
_PIECE_BYTES = 1 << 16
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416


@final
@dataclass(frozen=True)
class Download:
    """What to fetch, and what is too much: bytes, seconds of silence, seconds in all."""

    url: str
    path: Path
    most_bytes: int
    timeout_s: float = 30.0
    limit_s: float = 3600.0
    progress: Progress | None = None


def fetch(job: Download, verify: Callable[[Path], str]) -> None:
    """Returns when `job.path` is there. `verify` is given the whole file and says what is wrong with it, or ""."""
    if not job.url.startswith(("http://", "https://")):
        raise UserError(f"{job.url}: cannot fetch from there", hint="give an address that starts with https://")
    part = job.path.with_name(job.path.name + ".part")
    try:
        job.path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(job.path.parent, job.limit_s):
            if job.path.exists():
                return
            resumed = part.exists() and part.stat().st_size > 0
            problem = _attempt(job, part, verify)
            if problem and resumed:  # the part may be that of another file: once more, from the start
                problem = _attempt(job, part, verify)
            if problem:
                raise UserError(
                    f"{job.url}: not the file that was expected: {problem}",
                    hint="try another address with --base-url, or put the files into --data-dir yourself",
                )
            move_file(part, job.path)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or part}: {error.strerror or error}",
            hint="give a directory that you may write to, with enough room, as --data-dir",
        ) from None


def _attempt(job: Download, part: Path, verify: Callable[[Path], str]) -> str:
    """Completes the part and checks it; a part that is wrong is removed, and what is wrong is returned."""
    deadline = time.monotonic() + job.limit_s
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _transfer(job, part, deadline)
            break
        except _Interrupted as error:
            if attempt == ATTEMPTS or time.monotonic() > deadline:
                kept = part.stat().st_size if part.exists() else 0
                if not kept:
                    part.unlink(missing_ok=True)
                raise UserError(
                    f"{job.url}: {error} (attempt {attempt})" + (f"; {kept} bytes are kept in {part}" if kept else ""),
                    hint=("try again: it goes on from there; or " if kept else "")
                    + "put the files into --data-dir yourself",
                ) from None
    problem = verify(part)
    if problem:
        part.unlink()
    return problem


def _transfer(job: Download, part: Path, deadline: float) -> None:
    """One request: appends to `part` what is missing."""
    with append_file(part) as file:
        have = file.tell()
        response = _ask(job, have)
        if response is None:  # nothing after `have`: complete, or not the same file; the check will tell
            return
        with response:
            if response.status != _PARTIAL_CONTENT:  # the server sends all of it
                file.truncate(0)
                have = 0
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                file.truncate(0)
                raise _Interrupted("the server sent another range than was asked for")
            total = 0 if response.length is None else have + response.length
            if total > job.most_bytes:
                file.truncate(0)
                raise _too_long(job, f"{total:,} bytes are to come")
            while piece := _read(response, job.timeout_s):
                have += len(piece)
                if have > job.most_bytes:
                    file.truncate(0)
                    raise _too_long(job, f"more than {job.most_bytes} bytes came")
                write_all(file, piece)
                if job.progress is not None:
                    job.progress(job.path.name, have, total)
                if time.monotonic() > deadline:
                    raise _Interrupted(f"not complete after {job.limit_s:g} s")
        os.fsync(file.fileno())
    if have < total:
        raise _Interrupted(f"the connection ended after {have} of {total} bytes")


def _ask(job: Download, have: int) -> HTTPResponse | None:
    headers = {"User-Agent": "unisono"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response: HTTPResponse = build_opener(_Redirects).open(Request(job.url, headers=headers), timeout=job.timeout_s)
        return response
    except HTTPError as error:
        error.close()
        if have and error.code == _RANGE_NOT_SATISFIABLE:
            return None
        if error.code >= 500:
            raise _Interrupted(f"the server answers {error.code} {error.reason}") from None
        raise UserError(
            f"{job.url}: the server answers {error.code} {error.reason}",
            hint="try another address with --base-url, or put the files into --data-dir yourself",
        ) from None
    except URLError as error:
        raise _Interrupted(f"no connection ({error.reason})") from None
    except (OSError, HTTPException) as error:
        raise _Interrupted(_why(error, job.timeout_s)) from None
    except ValueError as error:  # an address, given or led to, that is none
        raise UserError(
            f"{job.url}: this address, or one that the server leads to, cannot be used: {error}",
            hint="try another address with --base-url, or put the files into --data-dir yourself",
        ) from None


def _read(response: HTTPResponse, timeout_s: float) -> bytes:
    try:
        return response.read1(_PIECE_BYTES)
    except (OSError, HTTPException) as error:
        raise _Interrupted(_why(error, timeout_s)) from None


def _why(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"the server was silent for {timeout_s:g} s"
    return f"the connection broke ({error or type(error).__name__})"


def _too_long(job: Download, what: str) -> UserError:
    return UserError(
        f"{job.url}: {what}; the file that is expected has at most {job.most_bytes:,}",
        hint="is this the right --base-url?",
    )


@final
class _Redirects(HTTPRedirectHandler):
    """Followed to https, or from http to http: whoever asked over https is not led to a connection that anybody can
    change, nor to a file of this machine."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not newurl.lower().startswith(("https:", f"{req.type}:")):
            fp.close()
            raise UserError(
                f"{req.full_url}: the server leads to {newurl[:200]!a}, from {req.type} to something else",
                hint="try another address with --base-url, or put the files into --data-dir yourself",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@final
class _Interrupted(Exception):
    """The transfer ended early; another attempt may go on."""


@contextmanager
def _alone(directory: Path, limit_s: float) -> Iterator[None]:
    """Holds the directory's lock; waits for the process that has it."""
    begun, told = time.monotonic(), False
    with FileLock(directory / ".lock") as lock:
        while not lock.acquire():
            waited_s = time.monotonic() - begun
            if waited_s > limit_s:
                raise UserError(
                    f"another process has been fetching into {directory} for {limit_s:g} s: {lock.describe_holder()}",
                    hint="is it stuck? end it, or give another directory as --data-dir",
                )
            if waited_s > TOLD_S and not told:
                told = True
                print(f"unisono: waiting for another download: {lock.describe_holder()}", file=sys.stderr, flush=True)
            time.sleep(0.05)
        yield
