"""What machines are called in messages, and which of them has an address.

>>> str(NodeName(0, "n1", "10.0.0.1", (0, 1)))
'node 0 (n1, 10.0.0.1, ranks 0, 1)'

Limits: machines that share an address cannot be told apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class NodeName:
    """A machine; without ranks, if they are beside the point."""

    node: int
    host: str
    address: str
    ranks: Sequence[int] = ()

    def __str__(self) -> str:
        ranks = self.ranks
        who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
        return f"node {self.node} ({', '.join(filter(None, (self.host, self.address, who)))})"
