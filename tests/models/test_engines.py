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


def test_the_choice_of_engine(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: object())
    for engine, spec, precision, chosen in [
        ("auto", "mlp:3", "fp32", "numpy"),
        ("auto", "bn-mlp", "bf16", "torch"),
        ("auto", "cnn", "fp32", "torch"),
        ("auto", "mine.py:net", "fp32", "torch"),
        ("torch", "linear", "fp32", "torch"),
        ("numpy", "linear", "fp32", "numpy"),
    ]:
        assert choose_engine(engine, spec, precision) == chosen, (engine, spec, precision)


def test_engines_that_do_not_fit():
    for engine, spec, precision, message in [
        ("numpyy", "mlp", "fp32", "unknown --engine 'numpyy'.*did you mean 'numpy'"),
        ("auto", "mine.py", "fp32", "--model mine.py names a file and no function.*HINT.*mine.py:FUNCTION"),
        ("auto", "mpl", "fp32", "unknown model 'mpl'.*cnn.*FILE.py:FUNCTION"),
        ("auto", "mlp", "fp31", "unknown --precision 'fp31'"),
        ("numpy", "cnn", "fp32", "--model cnn with --engine numpy, which does not have it"),
        ("numpy", "mlp", "bf16", "--precision bf16 with --engine numpy"),
        ("numpy", "mlp", "fp8", "--precision fp8: .*compute capability 8.9.*HINT: use --precision bf16"),
    ]:
        with pytest.raises(UserError, match=f"(?s){message}"):
            choose_engine(engine, spec, precision)
