import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unisono.models.base import Layout


def test_a_layout_packs_in_order_without_gaps():
    layout = Layout({"W": (3, 2), "b": (3,), "one": ()})
    assert layout.names == ("W", "b", "one")
    assert layout.offsets == (0, 6, 9)
    assert layout.sizes == (6, 3, 1)
    assert layout.length == 10
    views = layout.views(np.arange(10.0))
    assert views["W"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert views["b"].tolist() == [6, 7, 8]
    assert views["one"] == 9


def test_the_empty_layout():
    assert Layout({}).length == 0
    assert Layout({}).views(np.empty(0)) == {}


@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=5),
    rows=st.none() | st.integers(0, 3),
    padding=st.integers(0, 2),
)
def test_views_share_memory_and_cover_everything_once(shapes, rows, padding):
    layout = Layout({str(number): shape for number, shape in enumerate(shapes)})
    lead = () if rows is None else (rows,)
    flat = np.zeros((*lead, layout.length + padding))
    for name, view in layout.views(flat).items():
        assert view.shape == (*lead, *layout.shapes[name])
        np.add(view, 1, out=view)
    assert (flat[..., : layout.length] == 1).all()
    assert (flat[..., layout.length :] == 0).all()
