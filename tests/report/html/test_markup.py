"""Whatever a text holds, it is shown and not obeyed."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.report.html.blocks import Axis, Code, Fold, Heat, Lines, Mark, Rows, Section, Series, Table, Text, Tiles
from unisono.report.html.markup import anchor, data, html_of, plain

EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """The elements and attributes of a page, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, tuple(name for name, _ in attributes)))

    def handle_data(self, data):
        self.text += data


def section(text: str) -> Section:
    import numpy as np

    series = Series(text, [[1.0, 2.0]], [0.5, 0.25])
    cells = np.ones((1, 1, 2))
    return Section(
        "Section",
        [
            Text(text, "warning"), Code(text), Tiles([(text, text, text)]), Table((text,), [[text]]),
            Fold(text, [Text(text)]),
            Lines(text, [Axis(text)], Axis(text, text), [series], [Mark([1.0], text, text)], text),
            Rows(text, Axis(text), [text], [text], [text], cells, [], text),
            Heat(text, Axis(text), [text], [text], np.ones((1, 1)), np.ones((1, 1)), 0.1, text, note=text),
        ],
    )  # fmt: skip


@given(st.one_of(st.text(), st.just(EVIL), st.text("<>&\"'`\u2028\ud800\x1b\u202e!-/=")))
def test_no_text_makes_an_element_or_an_attribute(text):
    assert Tags(html_of(section(f"x{text}"))).found == Tags(html_of(section("x" + "y" * len(text)))).found
    html_of(section(text)).encode()  # can be written


def test_the_text_is_shown():
    assert Tags(html_of(Section("Title", [Text(EVIL)]))).text == f"Title{EVIL}"


def test_data_inside_a_script_element_cannot_end_it():
    told = data({"name": EVIL, "values": [1, None]})
    assert "<" not in told
    assert json.loads(told) == {"name": EVIL, "values": [1, None]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a␛[31mb"),
        ("rm \u202egnp.txe", "rm \N{REPLACEMENT CHARACTER}gnp.txe"),
        ("two\nlines", "two\nlines"),
        ("x" * 400, "x" * 299 + "…"),
        ("\ud800", "?"),
    ],
)
def test_what_cannot_be_seen_is_made_visible(text, shown):
    assert plain(text) == shown


def test_columns_of_numbers_are_to_the_right():
    page = html_of(Section("T", [Table(("name", "time"), [["a", "81.5 ms"], ["b", "1,000 s"]])]))
    assert page.count('class="number"') == 3


def test_anchors_are_plain_words():
    assert anchor("Loss & accuracy <now>") == "loss-accuracy-now"
