"""Blocks as HTML. Everything that comes from a run passes through `plain` and an escape here, and nowhere else.

    html_of(Section("Loss", [Text("<b>is shown as it is</b>")]))

The one idea: no other module writes a `<`. Names of models, hosts and files, logs and messages are a stranger's text:
what would be markup is shown, what would be invisible (control characters, changes of the direction of writing) is made
visible, so that a command to be copied is what it looks like. Charts are data beside an empty figure: `assets/` draws.
"""

import base64
import html
import json
import re
import unicodedata
from collections.abc import Sequence

from unisono.report.html.blocks import Block, Chart, Code, Fold, Heat, Lines, Rows, Section, Table, Text, Tiles
from unisono.report.html.flame import Flame

LONGEST = 300
"""Characters of a cell or a label; the rest is cut."""
SENTENCE = 40
_NUMBER = re.compile(r"^(|-|-?[\d.,:]+(e[-+]?\d+)?( ?[%a-zA-Z/µ]+)?)$")


def plain(text: object, longest: int = LONGEST) -> str:
    """Text that can be shown: nothing invisible, nothing that turns the direction of writing, not too long."""
    shown = str(text).encode("utf-8", "replace").decode()
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return "".join(_visible(character) for character in shown)


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"):
        return character
    return chr(0x2400 + ord(character)) if ord(character) < 0x20 else "\N{REPLACEMENT CHARACTER}"


def escape(text: object, longest: int = LONGEST) -> str:
    """As HTML, inside an element or an attribute."""
    return html.escape(plain(text, longest), quote=True)


def data(spec: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end that."""
    text = json.dumps(_plain_data(spec), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain_data(value: object) -> object:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {key: _plain_data(entry) for key, entry in value.items()}
    return [_plain_data(entry) for entry in value] if isinstance(value, list) else value


def anchor(title: str) -> str:
    """The place of a section in the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def html_of(section: Section) -> str:
    """A section with its heading."""
    name = anchor(section.title)
    heading = f'<h2 id="{name}-h">{escape(section.title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-h">{heading}{_blocks(section.blocks)}</section>'


def brief_html(title: str, blocks: Sequence[Block], png: bytes | memoryview) -> str:
    """Blocks below a title, and a picture, for a page that is not ours. Empty: without a picture."""
    picture = base64.b64encode(png).decode()
    image = f'<img alt="losses" style="max-width:40em" src="data:image/png;base64,{picture}">' if picture else ""
    return f"<div><p><strong>{escape(title)}</strong></p>{_blocks(blocks)}{image}</div>"


def _blocks(blocks: Sequence[Block]) -> str:
    """Curves beside each other where there is room, everything else below each other."""
    made, curves = [], []
    for block in [*blocks, None]:
        if isinstance(block, Lines):
            curves.append(_figure(block))
            continue
        if curves:
            made.append(f'<div class="beside">{"".join(curves)}</div>')
            curves = []
        if block is not None:
            made.append(_block(block))
    return "\n".join(made)


def _block(block: Block) -> str:
    match block:
        case Text():
            return f'<p class="{escape(block.kind or "text")}">{escape(block.text, 4000)}</p>'
        case Code():
            copy = '<button type="button" class="copy">Copy</button>'
            return f'<div class="code">{copy}<pre>{escape(block.text, 1 << 16)}</pre></div>'
        case Tiles():
            return f'<div class="tiles">{"".join(_tile(*tile) for tile in block.tiles)}</div>'
        case Table():
            return _table(block)
        case Fold():
            return f"<details><summary>{escape(block.title)}</summary>{_blocks(block.blocks)}</details>"
        case Lines() | Rows() | Heat() | Flame():
            return _figure(block)


def _tile(what: str, value: str, small: str) -> str:
    return f"<div><span>{escape(what)}</span><strong>{escape(value)}</strong><small>{escape(small)}</small></div>"


def _table(table: Table) -> str:
    kinds = [_kind([row[at] for row in table.rows]) for at in range(len(table.head))]
    head = "".join(f'<th scope="col"{kinds[at]}>{escape(name)}</th>' for at, name in enumerate(table.head))
    rows = []
    for row in table.rows:
        cells = "".join(f"<td{kinds[at]}>{escape(cell)}</td>" for at, cell in enumerate(row))
        rows.append(f"<tr>{cells}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{body}</table></div>'


def _kind(cells: Sequence[str]) -> str:
    """The class of a column: numbers are aligned to the right, sentences keep some width on a phone."""
    if cells and all(_NUMBER.match(cell) for cell in cells):
        return ' class="number"'
    return ' class="long"' if any(len(cell) > SENTENCE for cell in cells) else ""


def _figure(chart: Chart) -> str:
    note = f"<p class='note'>{escape(chart.note, 1000)}</p>" if chart.note else ""
    return (
        f'<figure class="chart"><figcaption>{escape(chart.title)}</figcaption>'
        f'<div class="canvas"></div>{note}<script type="application/json">{data(chart.spec())}</script></figure>'
    )
