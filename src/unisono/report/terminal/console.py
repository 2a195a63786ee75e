"""A console of rich on which texts of strangers are shown, and cannot write to the terminal.

    Console().print(table)

The one idea: rich passes on what it was given, escape sequences included. Its own are segments apart, so all others can
be made visible on their way out, wherever they came from.

Limits: widths are those of the texts as they were given; a table with such a text in it is not straight.
"""

from collections.abc import Iterable
from typing import final

from rich import console
from rich.segment import Segment

from unisono.safe_print import visible


@final
class Console(console.Console):
    """rich's own, with nothing invisible in its texts."""

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What a thing looks like, piece by piece."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
