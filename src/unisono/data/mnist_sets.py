"""mnist and fashion-mnist: four idx files each, found on this machine or fetched, always compared with their checksums.

The one idea: the SHA-256 is that of the unpacked contents. The same images are around in several compressions
(the authors', Debian's, recompressed mirrors, unpacked), and all of them are right. What comes from a set's own address
is compared as it came, too, before it is unpacked. Unpacking is bounded either way (`idx.py`).

    raw = load_images("mnist", DataOptions(data_dir="/scratch/mnist"))

Files are looked for in --data-dir (or its subfolder of the dataset's name), where Debian's package puts them, and in
the user's cache; then they are fetched, into --data-dir if that is given. A file that is there but wrong is refused by
name: it is never passed over in silence.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from unisono.data import idx
from unisono.data.dataset import DataOptions, Raw
from unisono.data.fetch import Download, fetch
from unisono.errors import UserError
from unisono.files import open_file

NAMES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
CLASSES = 10
MOST_BYTES = idx.MOST_BYTES
"""No file of a set is longer, packed or not."""


@final
class Packed(NamedTuple):
    """A file as it comes from a set's own address."""

    nbytes: int
    sha256: str


@final
@dataclass(frozen=True)
class ImageSet:
    """Where a set comes from, where a system package puts it, and the SHA-256 of each unpacked file, as `NAMES`."""

    base_url: str
    system_dirs: tuple[str, ...]
    sha256: Mapping[str, str]
    packed: Mapping[str, Packed] = field(default_factory=dict)
    """What `base_url` serves; of other addresses nothing is known but the contents."""


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
        {
            "train_x": Packed(9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            "train_y": Packed(28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            "test_x": Packed(1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            "test_y": Packed(4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        },
    ),
    "fashion-mnist": ImageSet(
        # The authors' own files; the address that they name has no https.
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/"
        "b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion",
        ("/usr/share/datasets/fashion-mnist",),
        {
            "train_x": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train_y": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test_x": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test_y": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        {
            "train_x": Packed(26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            "train_y": Packed(29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            "test_x": Packed(4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            "test_y": Packed(5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        },
    ),
}


def places(name: str, data_dir: str) -> list[Path]:
    """The directories in which the files are looked for, in this order."""
    given = [Path(data_dir), Path(data_dir, name)] if data_dir else []
    return [*given, *map(Path, SETS[name].system_dirs), cache_dir(name)]


def cache_dir(name: str) -> Path:
    """Where fetched files go without --data-dir. XDG_CACHE_HOME is not read: no module below `launch` does."""
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
        packed = SETS[name].packed.get(key) if base_url == SETS[name].base_url else None
        job = Download(
            f"{base_url}/{stem}.gz",
            place / f"{stem}.gz",
            MOST_BYTES if packed is None else packed.nbytes,
            timeout_s=options.timeout_s,
            progress=options.progress,
        )
        try:
            fetch(job, partial(_problem, packed, SETS[name].sha256[key]))
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


def _problem(packed: Packed | None, sha256: str, path: Path) -> str:
    """What is wrong with a file that was fetched; it is unpacked only if it came as it should."""
    try:
        if packed is not None:
            with open_file(path) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            if found != packed.sha256:
                return f"SHA-256 as it came {found}, expected {packed.sha256}"
        return _read(path, sha256)[1]
    except UserError as error:
        return str(error).splitlines()[0]


def _missing(name: str, data_dir: str) -> UserError:
    files = ", ".join(f"{stem}[.gz]" for stem in NAMES.values())
    return UserError(
        f"{name} is not on this machine: looked for {files} in {', '.join(map(str, places(name, data_dir)))}",
        hint=f"{how_to_get(name)}, or point --data-dir to the files",
    )
