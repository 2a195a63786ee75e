"""The user's own code: a function of a file, named as `path.py:function`.

    make = UserFunction("mine.py:net"); module = make(shape=(1, 28, 28), outputs=10)

The one idea: the file is run once, under a name of ours; its function can then be called as often as needed. Another
process may run it again, as it was when it was read, though it may have been edited since. Any error in either is one
message with file and line, and with how the function was called.

A function is handed those of the offered arguments that it names, and nothing else. The file runs with the rights of
the user, as `python mine.py` would; its directory is importable while the file or its function runs. Modules beside it
are imported from their source, never from cached byte code (`import_from_source`): a file in `__pycache__` may hold
other code than the source that can be read. So for directories of own code, and those in them, Python is given a finder
that knows only sources and compiled modules (.so, which `source_files.py` names). The finder stays, because own code
may import something late.

Limits: directories that were on Python's path before, such as the packages of a virtual environment beside the code,
keep their byte code: they were importable anyway. Sources are compiled again in each process that imports them.
"""

import ast
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.abc import SourceLoader
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, final

from unisono.errors import UnisonoError, UserError, unknown_name
from unisono.files import expand_user, is_inside, read_file
from unisono.user_code.tracebacks import own_frame

_MOST_SOURCE_BYTES = 1 << 24
_installed: dict[str, frozenset[str]] = {}
"""Directory of own code -> directories in it that were importable before it."""


@final
class UserFunction:
    """The function of `path.py:function`; every mistake is a `UserError`."""

    def __init__(self, spec: str, source: bytes | None = None) -> None:
        """source: what the file held when it was first read, to run that again; None: what it holds now."""
        file, _, name = spec.rpartition(":")
        self.spec, self._path = spec, expand_user(file)
        source = read(spec) if source is None else source
        with self.explained(repeat="running the file"):
            self._function = _find(self._path, source, name)

    def __call__(self, **offered: Any) -> Any:
        """What the function returns, called with those of `offered` that it has parameters for."""
        with self.explained():  # a signature may be the user's own code, too
            fitting = self._fitting(offered)
        with self.explained(offered=offered):
            return self._function(**fitting)

    @contextmanager
    def explained(
        self,
        hint: str = "correct it",
        offered: Mapping[str, Any] = MappingProxyType({}),
        repeat: str = "calling the function",
    ) -> Iterator[None]:
        """Within it the file's directory is importable, and an error is told with its place in the user's own code, or
        where it was raised if that is in none of it, with the call that `offered` makes, and with what to `repeat` to
        see all of it."""
        directory = str(self._path.resolve().parent)
        import_from_source(directory)
        sys.path.insert(0, directory)
        try:
            yield
        except UnisonoError:
            raise
        except SyntaxError as error:
            raise UserError(f"{error.filename}:{error.lineno}: {error.msg}", hint="correct the file") from None
        except (Exception, SystemExit) as error:
            raise UserError(
                f"{self.spec} failed at {_place(error)}{self._call(offered)}",
                hint=f"{hint}; {repeat} in Python shows the whole traceback",
            ) from None
        finally:
            with suppress(ValueError):  # the user's code may have changed it
                sys.path.remove(directory)

    def _call(self, offered: Mapping[str, Any]) -> str:
        """A line that says how the function was called, if there was anything to be called with."""
        if not offered:
            return ""
        taken = self._fitting(offered)
        left = _written({name: value for name, value in offered.items() if name not in taken})
        more = f"; it may also take {left}" if left else ""
        return f"\n(called as {self.spec.rpartition(':')[2]}({_written(taken)}){more})"

    def _fitting(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except (ValueError, TypeError):  # written in C, perhaps
            return {}
        plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        strange = [p.name for p in plain if p.default is p.empty and p.name not in offered]
        if strange:
            may = f"no parameters but {' and '.join(offered)}" if offered else "no parameters"
            raise UserError(f"{self.spec} asks for {', '.join(strange)}", hint=f"give it {may}, or defaults")
        named = {p.name for p in plain}
        return {name: value for name, value in offered.items() if name in named}


def read(spec: str) -> bytes:
    """What the file of `path.py:function` holds."""
    path = expand_user(spec.rpartition(":")[0])
    if not path.is_file():
        raise UserError(f"{spec}: there is no file {path}", hint="is the path right, seen from here?")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{spec}: {error.strerror}", hint="make the file readable") from None


def _written(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _place(error: BaseException) -> str:
    """File, line and function, what went wrong, and below it the line itself."""
    frame = own_frame(error) or traceback.extract_tb(error.__traceback__)[-1]
    told = f"{frame.filename}:{frame.lineno}, in {frame.name}: {type(error).__name__}: {error}"
    return f"{told}\n    {frame.line}" if frame.line else told


def without_function(option: str, file: str) -> UserError:
    """The error for a file after `option` of which no function is named; it is read for those it has, not run."""
    try:
        tree = ast.parse(read_file(expand_user(file), _MOST_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # `UserFunction` will say more
        functions = []
    else:
        named = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        functions = [name for name in named if not name.startswith("_")]
    others = f"; it has {', '.join(functions)}" if functions else ""
    return UserError(
        f"{option} {file} names a file and no function of it",
        hint=f"give the function after a colon: {option} {file}:{functions[0] if functions else 'FUNCTION'}{others}",
    )


def _find(path: Path, source: bytes, name: str) -> Callable[..., Any]:
    module = _run(path, source)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown_name(f"function of {path}", name, functions)
    return function  # type: ignore[no-any-return]


def _run(path: Path, source: bytes) -> ModuleType:
    # Under a name of our own: mine.py may be called like a module that exists.
    spec = importlib.util.spec_from_file_location(f"unisono_own_{path.stem}", path)
    if spec is None or not isinstance(spec.loader, SourceLoader):
        raise UserError(f"{path}: not a Python file", hint="give path.py:function")
    name = str(path.absolute())
    code = spec.loader.source_to_code(source, name)
    # What looks at the source (torch.jit.script, tracebacks) finds what is run; None: not looked up on the disk again.
    linecache.cache[name] = len(source), None, importlib.util.decode_source(source).splitlines(keepends=True), name
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickles of the user's look themselves up there
    try:
        exec(code, vars(module))
    finally:
        del sys.modules[module.__name__]
    return module


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
