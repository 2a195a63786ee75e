"""Nasty names in a script: a real bash runs it, and every name arrives as it was given, or is refused."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unisono.cli.common.submission import Submission
from unisono.errors import UserError
from unisono.launch.slurm.options import LAUNCHERS, JobOptions, check, sbatch_words
from unisono.launch.slurm.quoting import as_path, check_plain, quote_directive

PIECES = [
    "a", "-", "--wrap=id", " ", "'", '"', "\\", "$(touch hacked)", "`touch hacked`", "$HOME", "${x}", ";touch hacked;",
    "&", "|", ">hacked", "#", "#SBATCH --wrap=id", "!", "*", "?", "[a]", "{a,b}", "~", "%j", "=", "\u00e9",
    "\u00a0", "\u6f22", "(", ")", "$'", "\\n", "@Q", "{0}", "{asks}",
]  # fmt: skip
REFUSED = ["\n", "\r", "\t", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\udcff"]
PROGRAM = """#!{python}
import json, sys
if sys.argv[1:] != ["-m", "unisono", "--version"]:
    print("ARGV", json.dumps(sys.argv[1:]), flush=True)
"""
START = '#!/bin/bash\nuntil [[ $1 == python || $1 == bash ]]; do shift; done\nexec "$@"\n'
VARIABLES = {
    "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURM_CPUS_PER_TASK": "1",
    "SLURM_NODEID": "0",
}  # fmt: skip
SEED = 20


def nasty(draw: random.Random) -> str:
    return "".join(draw.choices(PIECES, k=draw.randint(1, 6)))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bodies = {"srun": START, "mpirun": START, "python": PROGRAM.format(python=sys.executable)}
    bodies |= {"scontrol": "#!/bin/bash\necho n1\n", "sleep": "#!/bin/bash\nexec /bin/sleep 0.02\n"}
    for name, body in bodies.items():
        (tmp_path / name).write_text(body)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_names_arrive_as_they_were_given_and_none_becomes_a_line_or_an_option(launcher, number, place, monkeypatch):
    draw = random.Random(f"{SEED} {launcher} {number}")
    file = Path(nasty(draw).replace("/", "") + ".toml")
    file.write_text("epochs = 1\n")
    names = {key: nasty(draw) for key in ("model", "data", "data_dir", "out")}
    venv = place / nasty(draw)
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/activate").write_text("echo activated\n")
    given = {"partition": nasty(draw), "account": nasty(draw), "output": nasty(draw), "error": nasty(draw)}
    job = JobOptions(mem="1G", launcher=launcher, job_name="x" + nasty(draw), venv=str(venv), mpi="auto", **given)
    monkeypatch.setattr(
        "unisono.study.provenance.sys.argv", ["unisono", "submit", *names.values(), "\n#SBATCH --wrap=id"]
    )
    text = Submission(str(file), names, job).script()
    assert {key: directives(text)[f"--{key}"] for key in given} == given
    assert directives(text)["--job-name"] == job.job_name
    assert "--wrap" not in directives(text)
    before = sorted(os.listdir())
    ended = subprocess.run(
        ["bash", "-c", text], env=dict(os.environ) | VARIABLES, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (told,) = [json.loads(line[5:]) for line in ended.stdout.splitlines() if line.startswith("ARGV ")]
    words = told[told.index("train") + 1 :]
    assert words[0] == as_path(str(file))
    assert words[-1] == f"--out={names['out']}"
    for key in ("model", "data", "data_dir"):
        name, value = "--" + key.replace("_", "-"), names[key]
        assert f"{name}={value}" in words or words[words.index(name) + 1] == value
    assert sorted(os.listdir()) == before, "no name was run"


def directives(text: str) -> dict[str, str]:
    """The options that sbatch finds in a script, by its own rules: quotes, backslashes, # for comments."""
    found = {}
    for line in text.split("\n\n")[0].split("\n"):
        if line.startswith("#SBATCH"):
            word, held, quoted = "", False, ""
            for char in line.removeprefix("#SBATCH").strip():
                if held:
                    word, held = word + char, False
                elif char == "\\":
                    held = True
                elif quoted:
                    word, quoted = (word, "") if char == quoted else (word + char, quoted)
                elif char in "\"'":
                    quoted = char
                else:
                    assert char not in " #\u00a0", line
                    word += char
            name, _, value = word.partition("=")
            found[name] = value
    return found


@pytest.mark.parametrize("bad", REFUSED)
def test_a_name_with_control_characters_is_refused(bad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = JobOptions(mem="1G")
    file = f"a{bad}#SBATCH --x.toml"
    Path(file).write_text("epochs = 1\n")
    for source, overrides in (("", {"data": f"a{bad}b"}), ("", {"out": f"a{bad}"}), (file, {})):
        with pytest.raises(UserError, match="more than a line of plain text\nHINT: ") as caught:
            Submission(source, overrides, job).script()
        assert str(caught.value).replace("\n", "").isprintable()


def test_names_that_no_file_can_have_are_refused(tmp_path, monkeypatch):
    """With the number of a job behind them, or .sbatch."""
    monkeypatch.chdir(tmp_path)
    check(JobOptions(job_name="n" * 200))
    for name in ("n" * 201, "\N{SNOWMAN}" * 67):
        with pytest.raises(
            UserError, match=r"the job's name is longer than 200 bytes: .*\nHINT: files are named after it"
        ):
            check(JobOptions(job_name=name))
        Path(f"{name}.toml").write_text("epochs = 1\n")
        with pytest.raises(UserError, match="the job's name is longer than 200 bytes: "):
            Submission(f"{name}.toml", {}, JobOptions(mem="1G")).script()


@pytest.mark.parametrize("name", ["--wrap=id", "-x", "a/b"])
def test_a_job_is_not_named_like_an_option(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(f"the job's name is {name!r}\nHINT: files are named after it")):
        check(JobOptions(job_name=name))
    if "/" not in name:
        Path(f"{name}.toml").write_text("epochs = 1\n")
        with pytest.raises(UserError, match=re.escape(f"the job's name is {name!r}")):
            Submission(f"./{name}.toml", {}, JobOptions(mem="1G")).script()


@pytest.mark.parametrize(
    "line",
    ["", "x", "-", "--", "--a b c", "--a --wrap=id", "--a 'b", "--wrap=id", "--wra=id", "--comment=x", "--comm=x"],
)
def test_an_option_of_sbatch_is_one(line):
    with pytest.raises(UserError, match="HINT: "):
        sbatch_words(line)


def test_an_option_of_sbatch_may_have_its_value_beside_it():
    assert sbatch_words("-C 'a|b'") == ["-C", "a|b"]
    assert sbatch_words("--constraint=[x*2&y]") == ["--constraint=[x*2&y]"]
    assert quote_directive("--constraint=[x*2&y]") == '"--constraint=[x*2&y]"'
    with pytest.raises(UserError, match="longer than 4000 bytes"):
        quote_directive("\u00e9" * 2001)


def test_spaces_of_every_kind_are_plain():
    assert check_plain("x", "a\u00a0b\u202fc d") == "a\u00a0b\u202fc d"
