"""Functions that a fresh interpreter cannot import by name: those of notebook cells, lambdas, functions in functions.

    fd = pack_function(work)                   # here; the caller closes it
    work = unpack_function(fd)                 # in a rank that has inherited the descriptor

The one idea: cloudpickle writes the function, with all that it refers to, into memory without a name, of which only
this process and its ranks have a descriptor. So a rank unpickles what its own parent wrote, and nothing else.

Limits: needs the package cloudpickle. What the function refers to is copied as it is at the time of the call; modules
are imported by name.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from unisono.errors import UserError
from unisono.optional_packages import how_to_install
from unisono.world import World

_IN_A_FILE = "define it at the top level of a file"


def pack_function(work: Callable[[World], Any], why: str = "") -> int:
    """The descriptor of a copy of `work`; a `UserError` if it cannot be copied. why: this process is not forked."""
    name = getattr(work, "__qualname__", "") or repr(work)
    if find_spec("cloudpickle") is None:
        raise UserError(
            f"{name} cannot be found by name in a fresh interpreter{why}, and cloudpickle, which would copy it, is not "
            "installed",
            hint=f"{how_to_install('notebook')}; or {_IN_A_FILE}",
        )
    import cloudpickle

    try:
        packed = cloudpickle.dumps(work)
    except Exception as error:  # whatever an object of the user's raises when it is copied
        raise UserError(
            f"{name} cannot be copied to a fresh interpreter{why}: {type(error).__name__}: {error}",
            hint=f"make what cannot be copied inside the function; or {_IN_A_FILE}",
        ) from error
    fd = os.memfd_create("unisono-function", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(packed)
    except BaseException:
        os.close(fd)
        raise
    return fd


def unpack_function(fd: int) -> Callable[[World], Any]:
    """The function behind an inherited descriptor."""
    import cloudpickle

    with open(f"/proc/self/fd/{fd}", "rb") as file:  # opened anew: ranks share the position of an inherited one
        return cloudpickle.load(file)  # type: ignore[no-any-return]
