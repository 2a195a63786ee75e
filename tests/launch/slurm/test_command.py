"""A command whatever it prints, and however long it takes."""

import os
from pathlib import Path

import pytest

from support.commands import put_command
from unisono.launch.slurm import command
from unisono.launch.slurm.command import Answer, plain, run_command


def test_what_is_printed_becomes_plain_text():
    assert plain(
        b"\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07a\tb\x00\x9b\xff"
    ) == "red\na\tb\N{REPLACEMENT CHARACTER}" + ("\N{REPLACEMENT CHARACTER}" * 2)


def test_both_outputs_and_the_exit_code_come_back_in_the_plain_locale(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ended = run_command(["bash", "-c", 'echo "$LC_ALL" "$PATH"; echo no >&2; exit 3'], 30.0)
    assert ended == Answer(3, f"C {os.environ['PATH']}\n", "no\n")


def test_the_job_keeps_the_locale_of_whoever_submits_it(monkeypatch, tmp_path: Path):
    put_command(tmp_path, "sbatch", 'echo "$LC_ALL"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert run_command(["sbatch"], 30.0).out == "C.UTF-8\n"


@pytest.mark.parametrize("name", ["sbatch", "sinfo"])
def test_no_command_gets_the_secret(monkeypatch, tmp_path: Path, name):
    put_command(tmp_path, name, 'echo "${UNISONO_SECRET-none}"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("UNISONO_SECRET", "seventeen letters")
    assert run_command([name], 30.0).out == "none\n"


@pytest.mark.parametrize("script", ["exec sleep 60", "exec 1>&- 2>&-; exec sleep 60", "while :; do echo x; done"])
def test_a_command_that_does_not_end_is_ended(script):
    with pytest.raises(TimeoutError, match=r"said nothing for 0\.2 s"):
        run_command(["bash", "-c", script], 0.2)


def test_one_that_prints_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(command, "MOST_BYTES", 1 << 17)
    with pytest.raises(OSError, match="said more than 131,072 bytes"):
        run_command(["cat", "/dev/zero"], 60.0)


def test_one_that_cannot_be_run(tmp_path):
    (tmp_path / "squeue").write_text("no program")
    (tmp_path / "squeue").chmod(0o755)
    for words in ([str(tmp_path / "squeue")], [str(tmp_path / "missing")], [str(tmp_path)]):
        with pytest.raises(OSError, match=r"."):
            run_command(words, 60.0)
