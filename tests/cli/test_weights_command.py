"""`unisono weights` as a user meets it: from a real run to the table and the files."""

import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from unisono.cli.main import app
from unisono.cli.weights import lines_of, table
from unisono.data.normalisation import Normalisation
from unisono.data.sources import load as load_data
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.storage.model_card import ModelCard
from unisono.storage.weights import Weights, load, read, save

DOCS = Path(__file__).parents[2] / "docs" / "use-what-you-trained.md"


@pytest.fixture
def called(command, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("COLUMNS", "80")
    return partial(command, "weights")


def test_the_table_of_a_run(called, run):
    code, shown, errors = called(run)
    assert (code, errors) == (0, "")
    summary = json.loads((run / "summary.json").read_text())
    assert f"weights_sha256 {summary['weights_sha256']}\nas in summary.json" in shown
    assert "1,430 parameters, 56 values in buffers" in shown
    assert "bn-mlp:16,12 (numpy, fp32, relu), trained on digits\na sample: 8 x 8; outputs: 10 classes\n" in shown
    assert "before the network: (x - 0.0) / 16.0, normalisation unit\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line.split() for line in shown.splitlines() if re.match(r" ?\d+\.", line)]
    assert [row[0] for row in rows] == list(read(run))
    array = read(run)["0.W"].astype(np.float64)
    assert rows[0][1:5] == ["64", "x", "16", "1,024"]
    expected = [array.mean(), array.std(), array.min(), array.max(), np.sqrt((array**2).sum())]
    np.testing.assert_allclose([float(field) for field in rows[0][5:]], expected, rtol=6e-3)


def test_a_file_without_a_run_and_a_run_without_a_summary_are_shown(called, run, tmp_path):
    (run / "summary.json").unlink()
    shutil.copy(run / "weights.safetensors", tmp_path / "w.safetensors")
    for named in (tmp_path / "w.safetensors", run):
        code, shown, _ = called(named)
        assert code == 0
        assert "1.running_var" in shown
        assert "compared with no summary.json of a finished run" in shown


def test_what_new_samples_go_through_is_told_in_80_columns():
    card = ModelCard.of(
        Recipe.from_options(model="a" * 99 + ".py:\x1b[2J", data="b" * 200, engine="torch"), load_data("digits")
    )
    many = Normalisation("standard", np.zeros(1300, np.float32), np.ones(1300, np.float32))
    found = [lines_of(replace(card, normalisation=each)) for each in (Normalisation(), many, None)]
    texts = [" ".join(lines) for lines in found]
    assert max(len(line) for lines in found for line in lines) <= 80
    assert "\x1b" not in texts[0]
    for text, told in zip(texts, ["nothing", "each of 1,300 features", "constants were not kept"], strict=True):
        assert text.endswith(told)
    words = replace(card, tokens=True, vocabulary="abc", normalisation=Normalisation())
    assert lines_of(words)[-1] == "before the network: the place of each character among 3"


def test_the_table_fits_80_columns_and_hides_no_digit():
    tiny = np.array([-1.234567e-38, -9.87654e-39], np.float32)
    arrays = {"encoder.layers.11.attention.output.dense.W": np.tile(tiny, (1000, 2, 3, 1)), "[red]0.b": tiny}
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(table(Weights(arrays, {"n": np.array([]), "broken": np.array([np.inf, np.nan, -np.inf])})))
    shown = capture.get()
    assert max(map(len, shown.splitlines())) <= 80
    assert "-1.23e-38" in shown
    assert "[red]0.b" in shown
    assert "…" not in shown
    assert shown.count("nan") == 5
    assert "encoder.layers.11.attention.output.dense.W" in "".join(
        match[0] for match in re.findall(r"(?m)^ ?([\w.]+)( |$)", shown)
    )


def test_a_mismatch_is_exit_code_1_and_nothing_is_exported(called, run, tmp_path):
    weights = load(run)
    told = json.loads((run / "summary.json").read_text())["weights_sha256"]
    changed = {name: array * 2 for name, array in weights.parameters.items()}
    save(Weights(changed, weights.buffers), run / "weights.safetensors")
    code, shown, errors = called(run)
    assert code == 1
    assert "1.running_var" in shown
    assert told in errors
    assert load(run).sha256() in errors
    code, shown, errors = called(run, "--export", tmp_path / "w.npz")
    assert (code, shown) == (1, "")
    assert told in errors
    assert not (tmp_path / "w.npz").exists()


def test_export(called, run, tmp_path):
    target = tmp_path / "w.npz"
    code, shown, _ = called(run, "--export", target)
    assert code == 0
    assert shown == f"Written: {target}, 14 arrays, weights_sha256 {load(run).sha256()}\n"
    written = target.read_bytes()
    code, _, errors = called(run, "--export", target)
    assert code == 2
    assert "--force" in errors
    assert called(run, "--export", target, "--force")[0] == 0
    assert target.read_bytes() == written


def test_bad_input_is_one_message_and_exit_code_2(called, run, tmp_path):
    target = tmp_path / "out" / "w.npz"
    target.parent.mkdir()
    (tmp_path / "w.pt").write_bytes(b"\x80\x04")

    def refused(message: str, *arguments: object) -> None:
        code, shown, errors = called(*arguments)
        assert (code, shown) == (2, "")
        assert errors.startswith("unisono: ")
        assert message in errors
        assert "HINT: " in errors
        assert not list(target.parent.iterdir())

    refused("File name too long", tmp_path / ("n" * 300), "--export", target)
    refused("is not a run directory", tmp_path, "--export", target)
    refused("no run directory and no .safetensors file", tmp_path / "w.pt", "--export", target)
    for text in (b"", b"{", b"[]", b"7", b'{"status": "finished"}', b"\xff"):
        (run / "summary.json").write_bytes(text)
        refused("summary.json is damaged, or holds no weights_sha256", run, "--export", target)
    (run / "weights.safetensors").write_bytes(b"garbage")
    refused("cannot be read", run, "--export", target)
    (run / "weights.safetensors").unlink()
    told = "holds no weights: there is no weights.safetensors\nHINT: they are written at the end of every epoch"
    refused(told, run, "--export", target)


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    save(Weights({"W": np.ones((2, 1), np.float32)}, {}), path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cannot be read"):
            load(path)


def file_of(kind: str, elements: int, name: str = "W", order: str = "") -> bytes:
    """A safetensors file with one array of 8 bytes."""
    header = {name: {"dtype": kind, "shape": [elements], "data_offsets": [0, 8]}}
    text = json.dumps(header | ({"__metadata__": {"order": order}} if order else {})).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


def carded(**changed: object) -> str:
    """The order of such a file, with a card in which something is changed."""
    card = ModelCard("mlp:7", "numpy", "fp32", "relu", 0.0, "digits", 3, 3, "", (13,), False, Normalisation()).plain
    return json.dumps({"parameters": ["W"], "buffers": [], "card": card | changed})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"garbage " * 99, "cannot be read"),
        (b"\x80\x04\x95" + bytes(99), "cannot be read"),  # how a pickle starts
        (file_of("F32", 3), "cannot be read"),
        (file_of("BF16", 4), "W has type BF16"),
        (file_of("C64", 1), "W has type C64"),
        (file_of("F32", 2, name="\x1b[2J"), r"called '\x1b[2J'"),
        (file_of("F32", 2, order="[[["), "damaged: the order"),
        (file_of("F32", 2, order="7"), "damaged: the order"),
        (file_of("F32", 2, order='{"parameters": ["W"]}'), "damaged: the order"),
        (file_of("F32", 2, order='{"parameters": [1], "buffers": []}'), "damaged: the order"),
        (file_of("F32", 2, order='{"parameters": ["W"], "buffers": ["W"]}'), "damaged: the order"),
        (file_of("F32", 2, order="[" * 90_000), "damaged: the order"),
        (file_of("F32", 2, order='{"parameters": ["W"], "buffers": [], "torch": {"a": []}}'), "damaged: the order"),
        (file_of("F32", 2, order=carded(classes=1e400)), "damaged: the order"),
        (file_of("F32", 2, order=carded(shape=[math.nan])), "damaged: the order"),
        (file_of("F32", 2, order=carded(normalisation={"kind": "unit", "shift": 1, "scale": 2})), "damaged: the order"),
        (file_of("F32", 2, order=carded(normalisation=None, outputs=None)), "damaged: the order"),
        (file_of("F32", 2)[:8] + b"{" * 60 + bytes(20), "cannot be read: it has a header that is not plain JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_and_hostile_files_are_refused(tmp_path, content, message):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=re.escape(message)):
        load(tmp_path / "w.safetensors")


def test_the_commands_of_the_documentation_are_valid():
    commands = re.findall(r"`(unisono weights [^`]+)`", DOCS.read_text())
    assert commands
    for command in commands:
        app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def test_texts_of_a_card_do_not_write_to_the_terminal(called, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(
        file_of("F32", 2, order=carded(engine="\x1b[2J", precision="\x07", activation="\x1b[31m", model="m" * 9999))
    )
    code, shown, errors = called(tmp_path / "w.safetensors")
    assert (code, errors) == (0, "")
    assert not set(shown) & set("\x1b\x07")
    assert len(shown) < 3000


def test_only_regular_files_and_no_links_of_a_run(called, run, tmp_path):
    weights, elsewhere = run / "weights.safetensors", tmp_path / "elsewhere.safetensors"
    weights.rename(elsewhere)
    weights.symlink_to(elsewhere)
    assert "weights.safetensors cannot be read: is a link, which is not followed" in called(run)[2]
    assert called(weights)[0] == 0, "a link that is named is followed"
    weights.unlink()
    os.mkfifo(weights)
    for named in (run, weights):
        code, _, errors = called(named)
        assert code == 2
        assert "weights.safetensors cannot be read: is not a regular file" in errors
    weights.unlink()
    elsewhere.rename(weights)
    (run / "summary.json").unlink()
    os.mkfifo(run / "summary.json")
    code, _, errors = called(run)
    assert code == 2
    assert "summary.json is damaged" in errors
