"""mnist and fashion-mnist: four idx files each, found on this machine or fetched, always compared with their checksums.

The one idea: the SHA-256 is that of the unpacked contents. The same images are around in several compressions
(the authors', Debian's, recompressed mirrors, unpacked), and all of them are right.

    raw = load_images("mnist", DataOptions(data_dir="/scratch/mnist"))

Files are looked for in --data-dir (or its subfolder of the dataset's name), where Debian's package puts them, and in
the user's cache; then they are fetched, into --data-dir if that is given. A file that is there but wrong is refused by
name: it is never passed over in silence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from unisono.data import idx
from unisono.data.fetch import Download, fetch
from unisono.data.options import DataOptions
from unisono.data.raw import Raw
from unisono.errors import UserError

NAMES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
CLASSES = 10
MOST_BYTES = 64 << 20
"""No file of a set is longer, packed or not."""


@final
@dataclass(frozen=True)
class ImageSet:
    """Where a set comes from, where a system package puts it, and the SHA-256 of each unpacked file, as `NAMES`."""

    base_url: str
    system_dirs: tuple[str, ...]
    sha256: Mapping[str, str]


SETS = {
    "mnist": ImageSet(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        (),
        {
            "train_x": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train_y": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "test_x": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "test_y": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion-mnist": ImageSet(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ("/usr/share/datasets/fashion-mnist",),
        {
            "train_x": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train_y": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test_x": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test_y": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def places(name: str, data_dir: str) -> list[Path]:
    """The directories in which the files are looked for, in this order."""
    given = [Path(data_dir), Path(data_dir, name)] if data_dir else []
    return [*given, *map(Path, SETS[name].system_dirs), cache_dir(name)]


def cache_dir(name: str) -> Path:
    """Where fetched files go without --data-dir. XDG_CACHE_HOME is not asked: below `launch` nobody reads it."""
    return Path.home() / ".cache" / "unisono" / name


def find(name: str, data_dir: str) -> Path | None:
    """The first directory that has all four files; nothing is opened."""
    return _first_complete(places(name, data_dir))


def provide(name: str, options: DataOptions) -> tuple[Path, bool]:
    """The directory with the files, in --data-dir if that is given, and whether they were fetched just now."""
    inside = places(name, options.data_dir)
    found = _first_complete(inside[:2] if options.data_dir else inside)
    return (found, False) if found else (fetch_images(name, options), True)


def how_to_get(name: str) -> str:
    package = f", or apt install dataset-{name}" if SETS[name].system_dirs else ""
    return f"unisono data fetch {name}{package}"


def load_images(name: str, options: DataOptions) -> Raw:
    """The images and labels; fetched first if they are nowhere and that is allowed."""
    place = find(name, options.data_dir)
    # A directory that is not there is a slip of the pen, not a place to fetch to: `data fetch` makes it.
    known = not options.data_dir or Path(options.data_dir).is_dir()
    if place is None and not (known and options.download):
        raise _missing(name, options.data_dir)
    return read_images(name, place or fetch_images(name, options))


def read_images(name: str, place: Path) -> Raw:
    """The images and labels in `place`, compared with their checksums."""
    arrays = {}
    for key, stem in NAMES.items():
        path = _file(place, stem) or place / stem  # the second if it was removed in between: reading says so
        arrays[key], problem = _read(path, SETS[name].sha256[key])
        if problem:
            other = next((other for other, known in SETS.items() if known.sha256[key] == _sha256(problem)), "")
            raise UserError(
                f"{path}: not the file of {name}: {problem}",
                hint=f"this is {other}'s: give --data {other}"
                if other
                else f"is it damaged? unisono data fetch {name} gets it into another directory",
            )
    return Raw(name, arrays, CLASSES, normalise="unit")


def fetch_images(name: str, options: DataOptions) -> Path:
    """Fetches what is not yet in the directory for fetched files; that directory."""
    place = Path(options.data_dir) if options.data_dir else cache_dir(name)
    base_url = (options.base_url or SETS[name].base_url).rstrip("/")
    for key, stem in NAMES.items():
        if _file(place, stem):
            continue
        job = Download(
            f"{base_url}/{stem}.gz",
            place / f"{stem}.gz",
            MOST_BYTES,
            timeout_s=options.timeout_s,
            progress=options.progress,
        )
        try:
            fetch(job, partial(_problem, SETS[name].sha256[key]))
        except UserError as error:
            looked = ", ".join(map(str, places(name, options.data_dir)))
            raise UserError(f"{name} is not in {looked}, and could not be fetched.\n{error}") from None
    return place


def _first_complete(directories: list[Path]) -> Path | None:
    return next((place for place in directories if all(_file(place, stem) for stem in NAMES.values())), None)


def _file(place: Path, stem: str) -> Path | None:
    return next((path for path in (place / f"{stem}.gz", place / stem) if path.is_file()), None)


def _read(path: Path, sha256: str) -> tuple[np.ndarray, str]:
    found = idx.read(path)
    problem = "" if found.sha256 == sha256 else f"SHA-256 of the unpacked contents {found.sha256}, expected {sha256}"
    return found.array, problem


def _sha256(problem: str) -> str:
    """The one that was found, of a problem that `_read` tells."""
    return problem.partition("contents ")[2].partition(",")[0]


def _problem(sha256: str, path: Path) -> str:
    try:
        return _read(path, sha256)[1]
    except UserError as error:
        return str(error).splitlines()[0]


def _missing(name: str, data_dir: str) -> UserError:
    files = ", ".join(f"{stem}[.gz]" for stem in NAMES.values())
    return UserError(
        f"{name} is not on this machine: looked for {files} in {', '.join(map(str, places(name, data_dir)))}",
        hint=f"{how_to_get(name)}, or point --data-dir to the files",
    )
