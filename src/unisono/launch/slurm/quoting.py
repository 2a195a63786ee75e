"""Texts of the user's as words of a script: quoted for the shell, quoted for sbatch, or refused.

The one idea: a text becomes part of a script here or nowhere. A control character in it is refused, so that no name can
become a line of its own; everything else is quoted and arrives as it was given.

    quote("--out", "my runs/$x")              # 'my runs/$x'
    quote_directive("--job-name=my job")      # "--job-name=my job"

Limits: names that are not UTF-8 are refused, though the file system takes them: a script is a text.
"""

import os
import re
import shlex
import unicodedata

from unisono.errors import UserError

MOST_DIRECTIVE_BYTES = 4000
"""sbatch reads each option of a script into a buffer of 8192."""


def is_plain(text: str) -> bool:
    """Whether a text is one line that any terminal and editor shows as it is."""
    return all(char.isprintable() or unicodedata.category(char) == "Zs" for char in text)


def check_plain(name: str, text: str) -> str:
    """The text itself; a `UserError` if it has control characters or bytes that are not UTF-8. name: what it is."""
    if not is_plain(text):
        raise UserError(
            f"{name} is {os.fsencode(text)!r}: more than a line of plain text",
            hint="rename it: a script for SLURM takes no line breaks, control characters or bytes that are not UTF-8",
        )
    return text


def quote(name: str, text: str) -> str:
    """One word of a shell."""
    return shlex.quote(check_plain(name, text))


def quote_directive(text: str) -> str:
    """One word of a line that begins with #SBATCH: sbatch reads it much as a shell does, but expands nothing."""
    check_plain("an option of sbatch", text)
    # Other letters are quoted too: in an ISO-8859-1 locale a byte of one may be a space.
    safe = re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII)
    quoted = text if safe else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
    if len(quoted.encode()) > MOST_DIRECTIVE_BYTES:
        found = f"an option of sbatch is longer than {MOST_DIRECTIVE_BYTES} bytes: {text[:60]}..."
        raise UserError(found, hint="give a shorter one")
    return quoted


def as_path(text: str) -> str:
    """A path that no command takes for an option."""
    return f"./{text}" if text.startswith("-") else text
