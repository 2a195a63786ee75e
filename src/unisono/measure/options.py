"""Reading lists and sizes from the command line.

>>> sizes("1KiB,2MiB", "--sizes")
[1024, 2097152]

Every function takes the option's name, so that the error can say which one was wrong. Imports nothing heavy.
"""

import re

from unisono.errors import UserError, unknown_name

_UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def words(text: str) -> list[str]:
    """'a, b' -> ['a', 'b']; duplicates are dropped."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def choices(text: str, valid: list[str], what: str) -> list[str]:
    """A comma-separated list of names out of `valid`; 'all' is all of them."""
    chosen = words(text)
    if "all" in chosen:
        return valid
    for name in chosen:
        if name not in valid:
            raise unknown_name(what, name, [*valid, "all"])
    if not chosen:
        raise UserError(f"no {what} given", hint=f"choose from {', '.join(valid)}")
    return chosen


def numbers(text: str, option: str, least: int = 1) -> list[int]:
    """A comma-separated list of whole numbers, each at least `least`."""
    try:
        found = [int(word) for word in words(text)]
    except ValueError:
        raise UserError(f"{option} {text}: not a list of whole numbers", hint=f"for example {option} 2,4,8") from None
    if not found:
        raise UserError(f"{option} is empty", hint=f"for example {option} 2,4,8")
    if min(found) < least:
        raise UserError(f"{option} {text}: each must be {least} or more", hint=f"for example {option} 2,4,8")
    return found


def sizes(text: str, option: str) -> list[int]:
    """A comma-separated list of sizes in bytes: 512, 16KiB, 4M."""
    found = []
    for word in words(text):
        match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", word, re.IGNORECASE)
        if match is None:
            raise UserError(f"{option} {word}: not a size", hint=f"for example {option} 1KiB,64KiB,4MiB")
        found.append(int(match[1]) * _UNITS[match[2].upper()])
    if not found:
        raise UserError(f"{option} is empty", hint=f"for example {option} 1KiB,64KiB,4MiB")
    return list(dict.fromkeys(found))
