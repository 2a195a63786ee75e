r"""What is printed: texts of strangers are shown, and cannot write to the terminal.

The one idea: names of files, hosts and models, hashes and messages of other programs pass through here on their way to
the terminal. What would be invisible there (escape sequences, other control characters, changes of the direction of
writing) is shown as Python writes it; what the terminal's encoding does not have as well.

    from unisono.safe_print import print
    print("\x1b[2J is shown as \\x1b[2J")

`report/terminal/console.py` does the same for tables and bars. Limits: line breaks and tabs stay as they are; what
must be one line passes through `printable`. What the user's own code prints is not looked at.
"""

import builtins
import io
import os
import re
import shlex
import sys
import unicodedata
from typing import TextIO

_NOT_PLAIN = re.compile(r"[^\n\t\x20-\x7e]")
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def print(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Python's `print`, with nothing invisible in it."""
    builtins.print(visible(sep.join(map(str, values))), end=end, file=file, flush=flush)


def visible(text: str) -> str:
    """The text with everything invisible shown, but for line breaks and tabs."""
    return _NOT_PLAIN.sub(_shown, text.replace("\r\n", "\n"))


def printable(text: str) -> str:
    """The same as one line: line breaks and tabs are shown as well."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def shortened(value: object, most: int = 120) -> str:
    """A stranger's value on one line, in ASCII, cut off after `most` characters."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}..."


def short_name(text: str, most: int = 120) -> str:
    """A stranger's name as it is if it is printable and short; else `shortened`."""
    return text if text.isprintable() and len(text) <= most else shortened(text, most)


def shell_word(text: str) -> str:
    """As one word of a command line for bash, on one line; one that begins with a dash is no option."""
    word = f"./{text}" if text.startswith("-") else text
    if word.isprintable():
        return shlex.quote(word)
    quoted = "".join(
        letter
        if letter.isprintable() and letter not in "'\\"
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))
        for letter in word
    )
    return f"$'{quoted}'"


def accept_any_text() -> None:
    """Standard output and error take every text: what their encoding (that of the locale) lacks is shown as \\u2192."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may be closed, or be another object
            stream.reconfigure(errors="backslashreplace")


def _shown(found: re.Match[str]) -> str:
    character = found[0]
    hidden = unicodedata.category(character) in _HIDDEN
    return character.encode("unicode_escape").decode() if hidden else character
