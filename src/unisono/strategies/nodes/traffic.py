"""Traffic: how the sums of the machines come together, and how many bytes that takes.

The one idea: two ways, chosen by what they cost. *At once*: everybody sends its sums to everybody, who adds up all of
them; one message's time. *In parts*: each machine finishes a part of the vector, for which the others send it their
sums, and then all send each other the parts that are finished; two messages' time, and never more than 2 (n - 1) / n
times the vector where a machine has one sum. Between two machines with one sum each both take as many bytes.

>>> at_once([1, 1], 10**6), at_once([2, 1], 10**6), at_once([2, 1], 1000), at_once([1, 1, 1, 1], 1000)
(True, False, True, False)

The bits do not depend on the way: whoever adds follows the same tree.
"""

from collections.abc import Sequence

SMALL_BYTES = 64 * 1024
"""Below this a second message takes longer than twice the bytes: half a millisecond at 1 Gbit/s."""
MOST_BYTES = 2.0
"""Times the vector, sent by one machine: never more for the sake of time."""


def at_once(sums: Sequence[int], nbytes: int) -> bool:
    """Whether to send everything to everybody. `sums`: how many each machine has; `nbytes`: of the vector."""
    others = len(sums) - 1
    flat, parted = max(sums) * others, (max(sums) + 1) * others / len(sums)
    return flat <= parted or (flat <= MOST_BYTES and nbytes <= SMALL_BYTES)
