"""Answers of SLURM's, changed: what other versions, locales, sites and broken machines may say instead of it.

for text in mutations(REAL, seed=1, count=200): parse(text)
"""

import random
from collections.abc import Iterator

WORDS = [
    "", "UNLIMITED", "n/a", "N/A", "(null)", "INVALID", "-1", "0", "1.5K", "1e9", "9" * 5000, "\u0663", "None assigned",
    "1-00:00:00", "idle*", "down~", "drain#", "alloc!", "mix%", "maint$", "boot@", "resv^", "planned-", "8+",
    "\x1b[31mred\x1b[0m", "\x00", "\u6f22", "a" * 70000, "|||", "=", "JobId=", "%", "\r",
]  # fmt: skip


def mutations(real: str, seed: int, count: int) -> Iterator[bytes]:
    """`real` with some of its lines, fields, values and bytes changed; and bytes that have nothing to do with it."""
    draw = random.Random(seed)
    for _ in range(count):
        text = real
        for _ in range(draw.randint(1, 4)):
            text = draw.choice([_cut, _drop_line, _twice, _swap, _value, _column, _other_ends])(text, draw)
        data = bytearray(text.encode(errors="surrogateescape"))
        for _ in range(draw.choice([0, 0, 3])):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        yield bytes(data)
    yield from (draw.randbytes(draw.randint(0, 300)) for _ in range(count // 4))
    yield from (b"", b"\n", b" \n\n ", b"\xff\xfe", real.encode("utf-16"), real.encode() * 50)


def _cut(text: str, draw: random.Random) -> str:
    return text[: draw.randint(0, len(text))]


def _drop_line(text: str, draw: random.Random) -> str:
    lines = text.split("\n")
    lines.pop(draw.randrange(len(lines)))
    return "\n".join(lines)


def _twice(text: str, draw: random.Random) -> str:
    lines = text.split("\n")
    return "\n".join([*lines, draw.choice(lines), draw.choice(WORDS)])


def _swap(text: str, draw: random.Random) -> str:
    words = text.split(" ")
    first, second = draw.randrange(len(words)), draw.randrange(len(words))
    words[first], words[second] = words[second], words[first]
    return " ".join(words)


def _value(text: str, draw: random.Random) -> str:
    """Another value in the place of one: between separators."""
    for separator in draw.sample(["=", "|", " ", ":", "\n"], 5):
        parts = text.split(separator)
        if len(parts) > 1:
            at = draw.randrange(len(parts))
            rest = parts[at].partition(" ")[1:] if separator == "=" else ()
            parts[at] = draw.choice(WORDS) + "".join(rest)
            return separator.join(parts)
    return draw.choice(WORDS)


def _column(text: str, draw: random.Random) -> str:
    separator = draw.choice(["|", " ", "\t"])
    return "\n".join(f"{line}{separator}{draw.choice(WORDS)}" for line in text.split("\n"))


def _other_ends(text: str, draw: random.Random) -> str:
    return text.replace("\n", draw.choice(["\r\n", "\r", "\n\n", "\x85", "\u2028"]))
