"""Inputs for `fuzz.py`: run directories and studies that somebody else made: damaged files, links, pipes, devices and
directories in the place of files, manifests with a right seal and wrong facts, and code.

The one idea: a run and some studies are made once (`make_template`); each input copies one and changes one thing.

    given = make_rundir(random, sandbox)
"""

import hashlib
import json
import os
import shutil
import socket
import stat
from pathlib import Path
from random import Random

from fuzz_files import VALID
from fuzz_formats import mutate_file
from fuzz_mutations import edit_json, mutate_csv
from fuzz_sandbox import MARK, Sandbox
from fuzz_worker import ACCEPTED, EITHER, REFUSED, Input, Limits, run_input

from unisono.recipe.reading import load

TINY = (
    "--model", "mlp:7", "--data", "synthetic:classes=3,rows=53,features=13", "--engine", "numpy", "--batch-size", "24",
)  # fmt: skip
ASYNC = (*TINY, "--epochs", "2", "--ranks", "2", "--strategy", "async")
DRAFTS = (
    "recipe.toml.part", ".weights.safetensors.part", "summary.json.part", "metrics.jsonl.part", "energy.json.part",
    ".lock", "snapshots",
    "tensorboard", "loss.png", "report.html", "events.jsonl", "energy.json", ".recipe.toml.0123456789abcdef.part",
)  # fmt: skip
"""Names in a run directory that a writer may open."""
_BENCH = (
    "bench",
    "--transports",
    "shm",
    "--ranks",
    "2",
    "--sizes",
    "1KiB",
    "--algorithms",
    "naive",
    "--seconds",
    "0.01",
)
_STUDIES = {
    "predict": ("predict", *TINY, "--epochs", "1", "--samples-per-s", "1000", "--nodes", "2,3"),
    "bench": _BENCH,
    "profile": ("profile", *TINY, "--epochs", "1", "--ranks", "1", "--batches", "3"),
}
_MORE_STUDIES = {
    "compare": ("compare", *TINY, "--epochs", "1", "--over", "ranks=1,2", "--repeat", "1"),
    "scale": ("scale", *TINY, "--epochs", "1", "--grid", "1x1,1x2", "--repeat", "1"),
    "tune": ("tune", *TINY, "--epochs", "1", "--seconds", "1", "--ranks", "1"),
}


def make_template(folder: Path, *, whole: bool) -> None:
    """What inputs copy from. whole: also studies that take seconds."""
    snapshots = ("--snapshot-every", "1epochs", "--out")
    commands = {
        "sync": ("train", *TINY, "--epochs", "2", "--ranks", "1", "--tensorboard", *snapshots, "sync"),
        "async": ("train", *ASYNC, *snapshots, "async"),
    }
    studies = _STUDIES | (_MORE_STUDIES if whole else {})
    commands |= {name: (*words, "--out", name) for name, words in studies.items()}
    for name, words in commands.items():
        sandbox = Sandbox(folder / "making" / name, folder).make()
        # A search that ran out of time on a busy machine has left its files all the same.
        findings = run_input(Input(words, EITHER | {1}), sandbox, Limits(seconds=120.0))
        if findings or not (sandbox.work / name).is_dir():
            raise SystemExit(f"fuzz: {' '.join(words)} failed: {findings}\n{(sandbox.root / 'stderr').read_text()}")
        (sandbox.work / name).rename(folder / name)
    shutil.rmtree(folder / "making")


def copied(sandbox: Sandbox, name: str, to: str = "run") -> Path:
    shutil.copytree(sandbox.template / name, sandbox.work / to, symlinks=True)
    return sandbox.work / to


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def make_rundir(random: Random, sandbox: Sandbox) -> Input:
    """A run with one file damaged or replaced: shown, watched, exported, gone on with."""
    run = copied(sandbox, random.choice(("sync", "sync", "async")))
    valid, damaged = random.random() < VALID, random.random() < 0.6
    ways = [("report",), ("watch", "--terminal"), ("weights",), ("weights", "--export", "x.npz")]
    # Going on writes to every file of a run, which matters where something else lies in their places.
    way = "resume" if random.random() < (0.05 if damaged else 0.3) else random.choice([ways[0], *ways])
    argv = ("train", "--resume", "run") if way == "resume" else (*way, "run")
    if way == "resume":
        (run / "summary.json").unlink()
    if valid:
        return Input(argv, ACCEPTED, "as it is")
    if random.random() < 0.02:
        path, about = run / "metrics.jsonl", "many epochs, a high rank"
        path.write_text("".join(f'{{"epoch": {epoch}, "train_loss": 0.5}}\n' for epoch in range(1, 20_000)))
        heads, _, row = (run / "ranks.csv").read_text().partition("\n")
        (run / "ranks.csv").write_text(f"{heads}\n{row}{row.replace(',0,', f',{random.choice((4095, 2**31))},', 1)}")
    elif damaged:
        path = random.choice(files_of(run))
        data, about = mutate_file(random, path.name, path.read_bytes(), RECIPE_KEYS)
        path.write_bytes(data)
    else:
        snapshot = random.choice(sorted(os.listdir(run / "snapshots")))
        path = random.choice([*files_of(run), *(run / name for name in DRAFTS), run / "snapshots" / snapshot])
        about = replace_file(random, path, sandbox)
    # Weights that are not those of the summary are a failure, not a mistake of whoever looks at them.
    allowed = EITHER | {1} if "weights" in way else EITHER
    return Input(argv, allowed, f"{path.relative_to(sandbox.work)}: {about}")


def replace_file(random: Random, path: Path, sandbox: Sandbox) -> str:
    """Something else than a regular file in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    kind = random.choice(
        [
            "link",
            "link",
            "json",
            "new",
            "folder",
            "loop",
            "pipe",
            "zero",
            "random",
            "device",
            "directory",
            "socket",
            "second",
        ]
    )
    targets = {
        "link": sandbox.outside / "secret.txt", "json": sandbox.outside / "secret.json",
        "new": sandbox.outside / "new.txt",
        "folder": sandbox.outside / "folder", "loop": Path(path.name), "zero": Path("/dev/zero"),
        "random": Path("/dev/urandom"),
    }  # fmt: skip
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        except PermissionError:
            path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            here = os.getcwd()
            os.chdir(path.parent)  # the whole path may be too long for a socket
            made.bind(path.name)
            os.chdir(here)
    else:
        os.link(sandbox.outside / "plain.txt", path)
    return kind


def make_manifest(random: Random, sandbox: Sandbox) -> Input:
    """A snapshot whose manifest has a right seal and wrong facts, or whose files are damaged."""
    run = copied(sandbox, random.choice(("sync", "async")))
    (run / "summary.json").unlink()
    argv = ("train", "--resume", "run")
    older, newest = sorted(path for path in (run / "snapshots").iterdir() if path.is_dir())
    alone = random.random() < 0.8
    if alone:
        shutil.rmtree(older)
    if random.random() < VALID:
        return Input(argv, ACCEPTED, "as it is")
    if random.random() < 0.25:
        path = random.choice(sorted(newest.iterdir()))
        whole = path.read_bytes()
        data, about = mutate_file(random, path.name, whole)
        path.write_bytes(data)
        return Input(argv, REFUSED if alone and data != whole else ACCEPTED, f"{path.name}: {about}")
    path = newest / "manifest.json"
    content = json.loads(path.read_bytes())
    del content["manifest_sha256"]
    if random.random() < 0.75:
        content["facts"], about = edit_json(random, content["facts"])
    else:
        content, about = edit_json(random, content)
    path.write_bytes(seal(content))
    return Input(argv, EITHER, about)


def seal(content: object) -> bytes:
    """A manifest of any content with a right seal."""
    from unisono.storage.snapshots.manifest import _END, _SEAL

    text = json.dumps(content, indent=1)
    head = (text.removesuffix("\n}") + _SEAL).encode()
    return head + (hashlib.sha256(head).hexdigest() + _END).encode()


def make_study(random: Random, sandbox: Sandbox) -> Input:
    """What a study left, with one file damaged or replaced, shown."""
    names = [name for name in (*_STUDIES, *_MORE_STUDIES) if (sandbox.template / name).is_dir()]
    study = copied(sandbox, random.choice(names), "study")
    if random.random() < VALID:
        return Input(("report", "study"), ACCEPTED, "as it is")
    path = random.choice([path for path in files_of(study) if path.suffix in (".json", ".jsonl", ".csv", ".toml")])
    if random.random() < 0.85:
        data, about = mutate_file(random, path.name, path.read_bytes(), RECIPE_KEYS)
        path.write_bytes(data)
    else:
        about = replace_file(random, path, sandbox)
    return Input(("report", "study"), EITHER, f"{path.name}: {about}")


def make_order(random: Random, sandbox: Sandbox) -> Input:
    """A recorded order of pushes, to be repeated."""
    data, about, allowed = (sandbox.template / "async" / "pushes.csv").read_bytes(), "as it is", ACCEPTED
    path = sandbox.work / "pushes.csv"
    path.write_bytes(data)
    if random.random() < 0.1:
        about, allowed = replace_file(random, path, sandbox), EITHER
    elif random.random() > VALID:
        data, about = mutate_csv(random, data)
        path.write_bytes(data)
        allowed = EITHER
    return Input(("train", *ASYNC, "--order", "pushes.csv", "--out", "run"), allowed, about)


def make_code(random: Random, sandbox: Sandbox) -> Input:
    """A run or recipe that names code: none of it may run unasked."""
    evil = sandbox.root / "home" / "evil.py"
    code = f"import pathlib\npathlib.Path({str(sandbox.root / MARK)!r}).touch()\ndef f(): pass\n"
    name = random.choice(("model", "data"))
    if random.random() < 0.5:
        (sandbox.work / "evil.py").write_text(code)
        (sandbox.work / "r.toml").write_text(f'engine = "numpy"\n{name} = "evil.py:f"\n')
        return Input(("submit", "r.toml", "--dry-run"), EITHER, f"{name} in a recipe")
    run = copied(sandbox, "sync", "../home/run")
    evil.write_text(code)
    (run / "evil.py").write_text(code)
    where = random.choice((str(evil), "../evil.py", "evil.py", "run/evil.py", str(run / "evil.py")))
    (run / "summary.json").unlink()
    load(str(run / "recipe.toml"), {}).with_options(**{name: f"{where}:f"}).save(run / "recipe.toml")
    for path in run.glob("snapshots/*/manifest.json"):
        content = json.loads(path.read_bytes())
        del content["manifest_sha256"]
        content["facts"]["recipe"][name] = f"{where}:f"
        content["facts"]["directory"] = random.choice((str(run), str(run.parent), str(sandbox.work)))
        path.write_bytes(seal(content))
    return Input(("train", "--resume", "../home/run"), EITHER, f"{name} = {where}")


RECIPE_KEYS = (
    "ranks",
    "epochs",
    "model",
    "data",
    "lr",
    "batch_size",
    "shards",
    "strategy",
    "order",
    "snapshot_every",
    "keep",
)
