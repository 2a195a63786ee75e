from unisono.study.run_order import run_order


def test_rounds_go_there_and_back():
    assert [(turn.cell, turn.repeat) for turn in run_order("abc", repeat=2)] == [
        ("a", 0), ("b", 0), ("c", 0), ("c", 1), ("b", 1), ("a", 1),
    ]  # fmt: skip


def test_warm_ups_come_first_and_are_numbered_below_0():
    assert [turn.repeat for turn in run_order("a", repeat=2, warmup=2)] == [-2, -1, 0, 1]


def test_every_cell_is_as_often_early_as_late():
    order = [turn.cell for turn in run_order("ab", repeat=4)]
    places = {cell: sum(at for at, found in enumerate(order) if found == cell) for cell in "ab"}
    assert places["a"] == places["b"]
