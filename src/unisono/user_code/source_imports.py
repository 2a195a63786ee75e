"""How modules beside the user's own code are imported: from their source, never from cached byte code.

    import_from_source("/home/me/nets")        # `import layers` runs /home/me/nets/layers.py as it stands there

The one idea: what can be read is what runs. A file in `__pycache__` may hold other code than the source beside it, and
nobody reads it; so for directories of own code, and those in them, Python is given a finder that knows sources and
compiled modules (.so, which `source_files.py` names) alone. It stays, for own code may import something late.

Limits: directories that were on Python's path before, such as the packages of a virtual environment beside the code,
keep their byte code: they were importable anyway. Sources are compiled again in each process that imports them.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType
from typing import final

from unisono.files import is_inside

_installed: dict[str, frozenset[str]] = {}
"""Directory of own code -> directories in it that were importable before it."""


def import_from_source(directory: str) -> None:
    """From now on, in this process and those that it forks."""
    if directory in _installed:
        return
    entries = [entry for entry in sys.path if isinstance(entry, str) and entry]
    before = {place(entry) for entry in entries for place in (os.path.abspath, os.path.realpath)}
    _installed[directory] = frozenset(entry for entry in before - {directory} if is_inside(entry, directory))
    if _find_finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_finder)
    for entry in [entry for entry in sys.path_importer_cache if _is_own(entry)]:
        del sys.path_importer_cache[entry]


@final
class _SourceLoader(SourceFileLoader):
    """Compiles what the file holds; neither reads nor writes byte code."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _find_finder(entry: str) -> FileFinder:
    """A hook of `sys.path_hooks`."""
    if not _is_own(entry) or not os.path.isdir(entry):
        raise ImportError("no directory of own code", path=entry)
    return FileFinder(entry, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceLoader, SOURCE_SUFFIXES))


def _is_own(entry: str) -> bool:
    """As it is written or with links resolved: `parts` may be a link that leads out, and the directory itself one."""
    return any(
        is_inside(path, directory) and not any(is_inside(path, other) for other in others)
        for path in {os.path.abspath(entry), os.path.realpath(entry)}
        for directory, others in _installed.items()
    )
