"""about.json: the command, what the runs of a study have in common, the machine."""

import json
import shlex
import sys
from importlib import metadata

import pytest

from unisono.cli.common.study_about import command_line, write_about
from unisono.recipe import Recipe


def test_what_runs_agree_on_is_the_recipe_and_the_rest_is_varied(tmp_path, monkeypatch):
    words = ["scale", "--data", "it's here.npz", "--model", "mlp:64\nrm"]
    monkeypatch.setattr(sys, "argv", ["/x/__main__.py", *words])
    write_about(
        tmp_path, [Recipe.from_options(ranks=1, epochs=3, out="a"), Recipe.from_options(ranks=2, epochs=3, out="b")]
    )
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["varied"] == ["ranks"]
    assert about["recipe"]["epochs"] == 3
    assert {"ranks", "out", "resume"}.isdisjoint(about["recipe"])
    assert about["machine"]["cores"] > 0
    assert shlex.split(about["command"]) == ["unisono", *words[:-1], "mlp:64 rm"]
    assert "\n" not in command_line()


def test_the_version_of_torch_is_told_where_a_run_computes_with_it(tmp_path):
    pytest.importorskip("torch")
    write_about(tmp_path, [Recipe(), Recipe.from_options(strategy="ddp")])
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["machine"]["torch"] == metadata.version("torch")


def test_of_a_bench_there_is_no_recipe_and_of_jobs_elsewhere_no_machine(tmp_path):
    write_about(tmp_path, [], here=False)
    about = json.loads((tmp_path / "about.json").read_text())
    assert (about["recipe"], about["varied"], about["machine"]) == ({}, [], {})
