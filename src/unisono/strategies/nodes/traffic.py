"""Traffic: how the sums of the machines come together, and how many bytes that takes.

The one idea: two ways, and the one with fewer bytes is taken. *At once*: everybody sends its sums to everybody, who
adds up all of them; one message's time. *In parts*: each machine finishes a part of the vector, for which the others
send it their sums, and then all send each other the parts that are finished; two messages' time, and no more than
2 (n - 1) / n times the vector where a machine has one sum. Between two machines with one sum each both take as many
bytes.

>>> at_once([1, 1]), at_once([2, 1]), at_once([1, 1, 1, 1]), at_once([1, 0])
(True, False, False, True)

The bits do not depend on the way: whoever adds follows the same tree.
"""

from collections.abc import Sequence


def at_once(sums: Sequence[int]) -> bool:
    """Whether to send everything to everybody. `sums`: how many each machine has."""
    others = len(sums) - 1
    return max(sums) * others <= (max(sums) + 1) * others / len(sums)
