"""What the engine does not take, said by name before anything starts; and the user's own files."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from support.models.engine_cases import CLASSES, FEATURES, ROWS, VOCABULARY
from unisono.errors import UserError
from unisono.models.torch.build import build
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel
from unisono.rng import generator


def linear(outputs: int = CLASSES) -> nn.Module:
    return nn.Linear(FEATURES, outputs)


def with_buffer(buffer: torch.Tensor) -> nn.Module:
    module = linear()
    module.register_buffer("extra", buffer)
    return module


def overlapping() -> nn.Module:
    module = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES))
    module[0].again = nn.Parameter(module[0].weight.data)
    return module


def viewing() -> nn.Module:
    module = linear()
    module.register_buffer("part", module.weight.detach()[1])
    return module


class Doing(nn.Module):
    """Does something that it should not when it is called."""

    def __init__(self, what) -> None:
        super().__init__()
        self.layer, self.what = linear(), what

    def forward(self, x):
        return self.what(self, self.layer(x))


def writes(module, z):
    with torch.no_grad():
        module.layer.weight.clamp_(-1, 1)
    return z


def registers(module, z):
    module.register_buffer("late", torch.zeros(2))
    return z


class Stateful(nn.Linear):
    def get_extra_state(self):
        return {"a": 1}

    def set_extra_state(self, state):
        pass


REFUSED = [
    (lambda: linear().double(), "parameter 'weight' of Linear is of type float64"),
    (lambda: linear().bfloat16(), "parameter 'weight' of Linear is of type bfloat16"),
    (
        lambda: nn.Linear(FEATURES, CLASSES, dtype=torch.complex64),
        "parameter 'weight' of Linear is of type complex64",
    ),
    (lambda: nn.Linear(FEATURES, CLASSES, device="meta"), "parameter 'weight' of Linear is on device meta"),
    (lambda: nn.LazyLinear(CLASSES), "parameter 'weight' of LazyLinear has no shape yet: the module is lazy"),
    (lambda: linear().requires_grad_(False), "Linear has no parameter to train"),
    (
        lambda: nn.Sequential(nn.Linear(FEATURES, FEATURES).bfloat16().requires_grad_(False), linear()),
        r"parameter '0\.weight' of Sequential is of type bfloat16",
    ),
    (lambda: with_buffer(torch.zeros(2, dtype=torch.bfloat16)), "buffer 'extra' of Linear is of type bfloat16"),
    (lambda: with_buffer(torch.eye(3).to_sparse()), "buffer 'extra' of Linear is not a plain dense tensor"),
    (overlapping, r"parameters '0\.(again|weight)' and '0\.(again|weight)' of Sequential share memory"),
    (viewing, "buffer 'part' of Linear is a view of parameter 'weight', and would not follow it"),
    (lambda: Stateful(FEATURES, CLASSES), "Stateful has extra state"),
    (lambda: linear(3), r"Linear made \(2, 3\) of samples \(2, 20\); these data need \(2, 5\)"),
    (lambda: Doing(lambda module, z: (z, z)), "Doing returned tuple, not a tensor"),
    (lambda: Doing(lambda module, z: z.detach()), "the output of Doing has no gradient"),
    (lambda: Doing(writes), r"Doing writes into its parameter 'layer\.weight' when it is called"),
    (lambda: Doing(registers), "Doing makes or removes buffers when it is called: late"),
    (lambda: 3, r"the factory returned int, not a torch\.nn\.Module"),
]


def test_modules_that_do_not_fit_are_refused_by_name():
    for make, message in REFUSED:
        with pytest.raises(UserError, match=f"(?s){message}.*HINT"):
            TorchModel(make, ROWS)


OWN = """
import torch
from torch import nn
{extra}
def net({parameters}):
{body}
"""


def mine(folder, parameters: str, body: str, extra: str = "") -> str:
    """A file of the user's, as --model names it."""
    (folder / "mine.py").write_text(OWN.format(extra=extra, parameters=parameters, body=body))
    return f"{folder}/mine.py:net"


@pytest.mark.parametrize(
    ("parameters", "body", "message"),
    [
        ("", "  return nn.Linear(", r"mine\.py:\d+: .*never closed"),
        ("", "  return 'a net'", r"the factory returned str, not a torch\.nn\.Module"),
        ("", "  return nn.Linear(20, 4)", r"Linear made \(2, 4\) of samples \(2, 20\)"),
        ("", "  return nn.Linear(19, 5)", r"mine\.py:net failed at .*: RuntimeError: mat1 and mat2"),
        ("", "  raise ValueError('no such luck')", r"failed at .*mine\.py:6, in net: ValueError: no such luck"),
        ("width", "  return nn.Linear(20, 5)", r"mine\.py:net asks for width\nHINT: give it no parameters but shape"),
        ("", "  return nn.Linear(20, 5, device='meta')", "is on device meta"),
        ("", "  return nn.LazyLinear(5)", "the module is lazy"),
        # With the call that failed.
        ("shape, outputs", "  return nn.Conv2d(shape[2], 8, 3)", r"\n\(called as net\(shape=\(20,\), outputs=5\)\)\n"),
        (
            "outputs", "  return nn.Linear(20, outputs, strange=1)",
            r"\n\(called as net\(outputs=5\); it may also take shape=\(20,\)\)\n",
        ),
        ("", "  raise SystemExit('no')", r"\n\(called as net\(\); it may also take shape=\(20,\), outputs=5\)\n"),
    ],
)  # fmt: skip
def test_mistakes_in_the_users_file(tmp_path, parameters, body, message):
    before = list(sys.path)
    with pytest.raises(UserError, match=f"(?s){message}") as caught:
        build(mine(tmp_path, parameters, body), ROWS)
    assert "HINT" in str(caught.value)
    assert sys.path == before


FORWARD = """
class Net(nn.Module):
  def __init__(self):
    super().__init__()
    self.one = nn.Linear(19, 5)
  def forward(self, x):
    return self.one(x)
"""


@pytest.mark.parametrize("helper", [False, True])
def test_a_forward_that_fails_is_shown_with_its_own_line(helper, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # frames have whole paths, and the file was given without one
    name = "helper.py" if helper else "mine.py"
    (tmp_path / "helper.py").write_text(f"from torch import nn\n{FORWARD}")
    extra = "from helper import Net" if helper else FORWARD
    mine(tmp_path, "", "  return Net()", extra)
    try:
        with pytest.raises(UserError) as caught:
            build("mine.py:net", ROWS)
    finally:
        sys.modules.pop("helper", None)
    line = (tmp_path / name).read_text().splitlines().index("    return self.one(x)") + 1
    first, second, call, hint = str(caught.value).splitlines()
    assert first.startswith(f"mine.py:net failed at {tmp_path / name}:{line}, in forward: RuntimeError: mat1 and mat2")
    assert second == "    return self.one(x)"
    assert call == "(called as net(); it may also take shape=(20,), outputs=5)"
    assert hint.startswith("HINT: correct it: a sample has the shape (20,)")
    assert hint.endswith("; calling what the function returns with such a batch in Python shows the whole traceback")


@pytest.mark.parametrize("given", ["", "shape, outputs", "*, outputs, shape", "outputs, width=3", "*args, **more"])
def test_the_users_factory_is_given_what_it_names(tmp_path, given):
    body = "  return nn.Linear(20, outputs)" if "outputs" in given else "  return nn.Linear(20, 5)"
    if "shape" in given:
        body = "  return nn.Sequential(nn.Linear(*shape, outputs))"
    assert build(mine(tmp_path, given, body), ROWS).layout.length == 20 * 5 + 5


def test_an_image_has_its_channel_axis_in_the_users_factory(tmp_path):
    body = "  assert shape == (1, 8, 8)\n  return nn.Sequential(nn.Conv2d(1, 2, 8), nn.Flatten(), nn.Linear(2, 5))"
    assert build(mine(tmp_path, "shape", body), Task((8, 8), CLASSES)).layout.names[0] == "0.weight"


def test_random_numbers_of_a_factory_are_keyed_whichever_generator_it_uses(tmp_path):
    body = (
        "  module = nn.Linear(20, 5)\n"
        "  with torch.no_grad(): module.weight += np.random.rand() + random.random()\n"
        "  return module"
    )
    spec, found = mine(tmp_path, "", body, "import random\nimport numpy as np"), []
    for seed in (1, 1, 2):
        model = build(spec, ROWS)
        found.append(np.empty(model.layout.length, np.float32))
        model.init(found[-1], found[-1][:0], generator(seed, "init"))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("spec", "task", "options", "message"),
    [
        ("mine.py:net", ROWS, {"dropout": 0.5}, "the file decides"),
        ("nothing.py:net", ROWS, {}, r"there is no file nothing\.py"),
        ("gpt", ROWS, {}, "model 'gpt' does not fit the data, which are no text\nHINT: use linear"),
        ("mlp", Task((6,), VOCABULARY, tokens=True), {}, "does not fit the data, which are text\nHINT: use gpt"),
        ("mlp", ROWS, {"precision": "fp8"}, "compute capability 8.9"),
    ],
)
def test_names_that_do_not_fit(spec, task, options, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        build(spec, task, **options)
