"""The memory fence that hand-overs through shared memory need, where the processor needs one.

`fence` is None on x86-64: there stores become visible in program order and loads are not reordered with loads
(total store order), which is all that "write the data, then the flag" and "see the flag, then read the data" ask for;
the compiler cannot reorder either, as each access is a call into the interpreter. glibc's copies with non-temporal
stores, which leave that order, end in an `sfence` of their own. On other processors `fence` is C11's
`atomic_thread_fence` from libatomic, called between data and flag on both sides; where that library is missing,
importing this module refuses to work rather than to guess.

    if fence is not None: fence()
"""

import ctypes
import platform
from collections.abc import Callable

from unisono.errors import UserError

_SEQ_CST = 5


def find_fence(machine: str, library: str = "libatomic.so.1") -> Callable[[], None] | None:
    """The fence for a processor named as `platform.machine()` names it."""
    if machine in ("x86_64", "AMD64"):
        return None
    try:
        raw = ctypes.CDLL(library).atomic_thread_fence
    except (OSError, AttributeError):
        raise UserError(
            f"shared memory on {machine} needs a memory fence, and {library} is not installed",
            hint="install the system package libatomic1, or use --transport mpi or gloo",
        ) from None
    raw.argtypes, raw.restype = [ctypes.c_int], None
    return lambda: raw(_SEQ_CST)


fence: Callable[[], None] | None = find_fence(platform.machine())
