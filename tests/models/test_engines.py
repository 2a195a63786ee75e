import pytest

from unisono.errors import UserError
from unisono.models import engines
from unisono.models.engines import choose_engine


@pytest.mark.parametrize(
    ("engine", "spec", "precision", "told"),
    [
        ("auto", "cnn:16,32", "fp32", "--model cnn:16,32 needs the package torch"),
        ("auto", "cnn:16,32", "bf16", "--model cnn:16,32 needs the package torch"),
        ("auto", "net.py:make", "fp32", "--model net.py:make needs the package torch"),
        ("auto", "mlp:64", "bf16", "--model mlp:64 with --precision bf16 needs the package torch"),
        ("torch", "mlp:64", "fp32", "--model mlp:64 with the torch engine needs the package torch"),
    ],
)
def test_without_torch_its_reason_and_its_extra_are_named(engine, spec, precision, told, monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        choose_engine(engine, spec, precision)
    hint = "pip install -c constraints.txt '.[torch]' in unisono's repository"
    assert str(error.value) == f"{told}, which is not installed\nHINT: {hint}"
