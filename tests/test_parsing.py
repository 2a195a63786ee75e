"""JSON and TOML of strangers: what is malformed or absurd is a ValueError with a plain reason, in bounded memory."""

import subprocess
import sys

import pytest

from unisono.parsing import parse_json, parse_toml

DEEP_KEY = ".".join("c" * 16)
JSON = {
    "empty": ("", "Expecting value, in line 1"),
    "cut short": ('{"loss":\n', "in line 2"),
    "not UTF-8": (b'["\n\xff"]', "not UTF-8, in line 2"),
    "nested arrays": ("[" * 101 + "]" * 101, "more deeply than 100 levels"),
    "nested objects": ('{"a":' * 13_000, "more deeply than 100 levels"),
    "nested below a bracket in a string": ('["]]]]]]]]"' + ",[" * 100, "more deeply than 100 levels"),
    "a string without an end": ('["' + '\\"' * 100_000, "Unterminated string"),
    "digits": ("9" * 4301, "more than 4,300 digits"),
    "negative digits, after others": ("[1,\n-" + "9" * 4301 + "]", "more than 4,300 digits, in line 2"),
}
TOML = {
    "cut short": ("lr = ", "Invalid value"),
    "not UTF-8": (b"lr = 1\n\n\xff", "not UTF-8, in line 3"),
    "too long": ("#" * (1 << 20) + "\n", "longer than 1,048,576 bytes"),
    "dots": ("a" + ".a" * 20_000 + " = 1", "a key of more than 16 parts, in line 1"),
    "quoted dots": ("\n'a'" + ' . "a"' * 16 + " = 1", "a key of more than 16 parts, in line 2"),
    "dots in the name of a table": ("[a" + ".a" * 20_000 + "]", "a key of more than 16 parts"),
    "dots in an inline table": ("x = {y = 1, a" + ".a" * 20_000 + " = 1}", "a key of more than 16 parts"),
    "nested arrays": ("x = " + "[" * 5000 + "]" * 5000, "more deeply than 100 levels"),
    "nested tables": ("x = " + "{a = " * 5000, "more deeply than 100 levels"),
    "dotted keys of tables in tables": (f"x = {f'{{{DEEP_KEY} = ' * 97}1{'}' * 97}", "more deeply than 100 levels"),
    "keys": ("".join(f"k{n} = 1\n" for n in range(10_001)), "more than 10,000 keys and tables, in line 10001"),
    "tables": ("[[a]]\n" * 10_001, "more than 10,000 keys and tables"),
    "parts of keys": ("".join(f"k{n}.{DEEP_KEY[2:]} = 1\n" for n in range(700)), "more than 10,000 keys and tables"),
    "digits": ("x = " + "9" * 4301, "more than 4,300 digits"),
    "hexadecimal digits": ("x = [0x" + "f" * 4000 + "]", "more than 4,300 digits"),
    "a day that no month has": ("x = 2026-02-31", "Invalid date"),
}


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("strict", [False, True])
def test_json_that_is_refused(name, strict):
    text, reason = JSON[name]
    with pytest.raises(ValueError, match=reason):
        parse_json(text, strict=strict)


@pytest.mark.parametrize("name", TOML)
def test_toml_that_is_refused(name):
    text, reason = TOML[name]
    with pytest.raises(ValueError, match=reason):
        parse_toml(text)


def test_what_is_within_the_bounds_is_parsed():
    assert parse_json(b'{"loss": [0.5, 1e999]}') == {"loss": [0.5, float("inf")]}
    assert parse_json("[" * 100 + "]" * 100)[0][0][0] is not None
    assert parse_json('["' + "[" * 1000 + '", "' + "9" * 5000 + '"]') == ["[" * 1000, "9" * 5000]
    assert parse_json("9" * 4300) == 10**4300 - 1
    assert parse_toml(b'# a.a.a\nlr = 0.1\n[a."b.c"]\nd = ["""x.y.z""", 1979-05-27]') == parse_toml(
        "lr = 0.1\na.'b.c' = {d = ['x.y.z', 1979-05-27]}"
    )
    assert parse_toml('"' + "a." * 100 + '" = [' + "1.5, " * 1001 + "]\nx = '''" + "[" * 200 + "'''")["x"] == "[" * 200


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "NaN", "[-Infinity]", "1e999"])
def test_strict_json_has_each_key_once_and_finite_numbers(text):
    parse_json(text)
    with pytest.raises(ValueError, match=r"a key occurs twice|is not a finite number"):
        parse_json(text, strict=True)


def test_a_mebibyte_takes_little_memory():
    """What `tomllib` takes for such texts grows with the square of their dots: 40 kB took 1.6 GB."""
    code = """
import resource
from unisono.parsing import parse_json, parse_toml
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
for parse, text in [
    (parse_toml, "a" + ".a" * 500_000 + " = 1"),
    (parse_toml, "".join(f"k{n}" + ".a" * 15 + " = 1\\n" for n in range(25_000))),
    (parse_json, "[" * (1 << 20)),
    (parse_json, "[" + '{"a":1},' * 115_000 + "1]"),
]:
    try:
        parse(text)
    except ValueError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stderr == ""
    assert len(ended.stdout.splitlines()) == 3
