"""The secret that machines of a run prove to each other: where it comes from, and that no other user can read it.

    secret = find_secret("")              # or find_secret("run.secret"), a file of the user's choice

The one idea: a user who does nothing has one. Without a file or a variable it is ~/.config/unisono/secret, made by the
first machine that needs it: with a home directory that all machines share, that is all. Where homes differ, the file is
copied once. It is never an argument of a command, and stands in no message, recipe or run directory.

Limits: root, who may read the user's files, has it.
"""

import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from unisono.comm.topology.authentication import Secret
from unisono.environment.os_environ import SECRET, config_folder, forget_secret, given_secret, runtime_folder
from unisono.errors import UserError
from unisono.files import create_file, expand_user, open_file

LEAST_BYTES, MOST_BYTES = 16, 4096
_MADE_BYTES = 32
_WRITING_S = 3.0
"""For another machine that makes the file at this moment."""
_LOOK_S = 0.05
_OTHERWISE = f"where modes or owners cannot be changed (secrets of containers), set {SECRET} to what the file has"

_kept: dict[str, str] = {}
"""The variable as it was; see `keep_secret`."""


class _NoPlace(UserError):
    """There is no file of this user's, and none can be made."""


def find_secret(path: str = "", *, one_machine: bool = False) -> Secret:
    """The one of a file, if one is given; of the environment; of the user's own file. A `UserError` if it is none.

    one_machine: all who need it are on this one. Without a home that can be written they share a file of this machine.
    """
    if path:
        return _read(expand_user(path), "--secret-file")
    if given := given_secret() or given_secret(_kept):
        return Secret(_checked(os.fsencode(given).strip(), f"the variable {SECRET}"), f"the variable {SECRET}")
    try:
        return _own()
    except _NoPlace as error:
        if not one_machine:
            raise
        return _of_this_machine(error)


def keep_secret() -> None:
    """Takes the variable out of the environment of a rank, which the user's code and the programs that it starts see.
    `find_secret` goes on to know it: a process may connect again."""
    if given := given_secret():
        _kept[SECRET] = given
    forget_secret()


def _own() -> Secret:
    try:
        file = config_folder() / "unisono" / "secret"
    except RuntimeError:  # the user's number has no name, as in some containers
        raise _NoPlace(
            "this user has no home directory, so no place for a secret",
            hint=f"set {SECRET}, or give --secret-file, the same on every machine",
        ) from None
    try:
        return _made_once(file)
    except OSError as error:
        raise _NoPlace(
            f"the secret of this user, {file}, cannot be made: {error.strerror}",
            hint=f"set {SECRET}, or give --secret-file, the same on every machine",
        ) from None


def _of_this_machine(error: "_NoPlace") -> Secret:
    """For ranks of this machine alone, in a directory that this user alone can use; else the error."""
    runtime = runtime_folder()
    folders = [runtime / "unisono"] if runtime else []
    for folder in [*folders, Path(tempfile.gettempdir()) / f"unisono-{os.geteuid()}"]:
        with suppress(OSError):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            facts = folder.lstat()  # others may have been first in a directory that all can write
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077:
                return _made_once(folder / "secret")
    raise error


def _made_once(file: Path) -> Secret:
    if not file.exists():
        _check_owner(file)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was first
            create_file(file, secrets.token_hex(_MADE_BYTES) + "\n", durable=True, mode=0o600)
            return _read(file, "the secret", made=True)
    _wait_for_writer(file)
    return _read(file, "the secret")


def _check_owner(file: Path) -> None:
    """A `UserError` if it would be made in another user's home, as with a sudo that keeps HOME: for him it would be a
    secret that he cannot read. Directories of root are left to their modes: containers have such homes."""
    above = next(folder for folder in file.parents if folder.exists())
    if (owner := above.stat().st_uid) not in (0, os.geteuid()):
        raise _NoPlace(
            f"the secret of this user would be {file}, but {above} belongs to another user (uid {owner})",
            hint=f"set HOME to a directory of your own, as sudo -H does; or set {SECRET}, or give --secret-file",
        )


def _wait_for_writer(file: Path) -> None:
    """Returns at once if the file is complete; where it has no second name, it is seen while it is written."""
    deadline = time.monotonic() + _WRITING_S
    while time.monotonic() < deadline:
        try:
            if file.stat().st_size >= LEAST_BYTES:
                return
        except OSError:
            pass  # a network file system may show it late
        time.sleep(_LOOK_S)


def _read(file: Path, what: str, *, made: bool = False) -> Secret:
    try:
        with open_file(file) as opened:
            facts = os.fstat(opened.fileno())
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{what} {file} cannot be read: {error.strerror}",
            hint="make one on one machine (umask 077; openssl rand -hex 32 > FILE) and copy it to the others",
        ) from None
    if facts.st_uid != os.geteuid():
        raise UserError(
            f"{what} {file} belongs to another user",
            hint=f"copy it to a file of your own, with mode 0600; {_OTHERWISE}",
        )
    if loose := stat.S_IMODE(facts.st_mode) & ~0o700:
        raise UserError(
            f"{what} {file} may be used by others: its mode is {stat.S_IMODE(facts.st_mode):04o}, {loose:04o} too much",
            hint=f"chmod 600 {file}; if others could read it, make a new one; {_OTHERWISE}",
        )
    return Secret(_checked(data.strip(), f"{what} {file}"), f"{file}{', which was made just now' if made else ''}")


def _checked(key: bytes, what: str) -> bytes:
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise UserError(
            f"{what} has {len(key) if len(key) <= MOST_BYTES else f'more than {MOST_BYTES}'} bytes",
            hint=f"a secret has {LEAST_BYTES} to {MOST_BYTES}, made at random: openssl rand -hex 32",
        )
    return key
