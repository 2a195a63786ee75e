"""What machines are called in messages, and which of them a message speaks of.

The one idea: a name holds the address, so that what a library says of a lost connection leads back to the machine.

    told_of("10.0.0.1 is gone", [name_of(0, "n1", "10.0.0.1", [0, 1])])

Limits: machines that share an address cannot be told apart.
"""

import re
from collections.abc import Sequence


def name_of(node: int, host: str, address: str, ranks: Sequence[int]) -> str:
    """What a machine is called in messages; without ranks, if they are beside the point."""
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
    return f"node {node} ({', '.join(filter(None, (host, address, who)))})"


def told_of(text: str, names: Sequence[str]) -> list[str]:
    """The machines, called as by `name_of`, whose address is in a text: all of it, for 10.0.0.10 is another one.

    >>> told_of("10.0.0.1 is gone", [name_of(0, "a", "10.0.0.1", [0]), name_of(9, "b", "10.0.0.10", [9])])
    ['node 0 (a, 10.0.0.1, rank 0)']
    """
    told = set(re.findall(r"[0-9a-fA-F]*(?:(?:\.|::?)[0-9a-fA-F]+)+", text))
    return [name for name in names if told & set(re.split(r"[ (),]+", name))]
