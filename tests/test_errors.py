"""Messages for names that are in no table."""

import pytest

from unisono.errors import unknown_name

NETWORKS = ["linear", "mlp", "bn-mlp", "cnn", "wideresnet", "gpt"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("mpl", "there are: mlp, linear, bn-mlp, cnn, wideresnet, gpt\nHINT: did you mean 'mlp'?"),
        ("MLP", "there are: mlp, bn-mlp, linear, cnn, wideresnet, gpt\nHINT: did you mean 'mlp'?"),
        ("transformer", "there are: linear, mlp, bn-mlp, cnn, wideresnet, gpt\nHINT: choose one of these"),
    ],
)
def test_every_name_is_told_once_the_nearest_first(given, told):
    assert str(unknown_name("model", given, NETWORKS)) == f"unknown model {given!r}; {told}"


def test_an_empty_table():
    assert str(unknown_name("function", "net", [])).startswith("unknown function 'net'; there are: none\nHINT: ")
