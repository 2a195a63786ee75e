"""Inputs for `fuzz.py`: data files and weights, damaged or odd, read by the commands that read them.

    given = make_npy(random, sandbox)

Limits: arrays are tiny; a bomb (much data in a small file) is drawn now and then only, for it takes seconds.
"""

import gzip
import http.server
import io
import struct
import threading
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from fuzz_formats import mutate_idx, mutate_npy, mutate_npz, mutate_safetensors, pack_gz
from fuzz_mutations import ODD_NUMBERS, ODD_TEXTS, mutate_bytes
from fuzz_sandbox import Sandbox
from fuzz_worker import ACCEPTED, EITHER, REFUSED, Input

PARTS = ("train_x", "train_y", "test_x", "test_y")
IMAGES = {
    "train-images-idx3-ubyte": 3, "train-labels-idx1-ubyte": 1, "t10k-images-idx3-ubyte": 3,
    "t10k-labels-idx1-ubyte": 1,
}  # fmt: skip
"""The files of mnist, with their dimensions."""
VALID = 0.1
"""The share of inputs that are as they should be: whoever refuses everything is found by them."""


def arrays(random: Random) -> dict[str, np.ndarray]:
    """53 samples of 13 features in 3 classes, or a regression."""
    draw = np.random.default_rng(random.getrandbits(32))
    kinds = "<f4", "<f8", "<f2", "<i4", "|u1"
    found = {}
    for part, rows in (("train", 53), ("test", 7)):
        found[f"{part}_x"] = (draw.random((rows, 13)) * 9).astype(kinds[random.randrange(len(kinds))])
        found[f"{part}_y"] = np.arange(rows) % 3
    return found


def saved(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def make_npy(random: Random, sandbox: Sandbox) -> Input:
    """A directory of .npy files."""
    folder = sandbox.work / "data"
    folder.mkdir()
    files = {name: saved(array) for name, array in arrays(random).items()}
    about, allowed = "as it is", ACCEPTED
    if random.random() > VALID:
        name = random.choice(PARTS)
        whole = files[name]
        files[name], about = mutate_npy(random, whole)
        about = f"{name}: {about}"
        cut = len(files[name]) < len(whole) and whole.startswith(files[name])
        allowed = REFUSED if cut else EITHER
    for name, data in files.items():
        (folder / f"{name}.npy").write_bytes(data)
    return Input(("data", "check", "data"), allowed, about)


def make_npz(random: Random, sandbox: Sandbox) -> Input:
    np.savez(file := io.BytesIO(), **arrays(random))
    data, about, allowed = file.getvalue(), "as it is", ACCEPTED
    if random.random() > VALID:
        data, about = mutate_npz(random, data)
        allowed = EITHER
    (sandbox.work / "data.npz").write_bytes(data)
    return Input(("data", "check", "data.npz"), allowed, about)


def idx_file(rank: int, rows: int = 7) -> bytes:
    shape = (rows, 28, 28)[:rank]
    count = rows * (784 if rank == 3 else 1)
    return bytes((0, 0, 8, rank)) + struct.pack(f">{rank}I", *shape) + bytes(number % 10 for number in range(count))


def make_idx(random: Random, sandbox: Sandbox) -> Input:
    """Files like mnist's, which have another checksum, so that the command refuses them; or the reader alone."""
    damaged = random.choice(list(IMAGES))
    data, about = idx_file(IMAGES[damaged]), "as it is"
    valid = random.random() < VALID
    if not valid:
        data, about = mutate_idx(random, data)
    packed = random.random() < 0.5
    if packed and valid:
        data = gzip.compress(data)
    elif packed:
        data, more = pack_gz(random, data)
        about = f"{about}, {more}"
    path = sandbox.work / f"{damaged}{'.gz' if packed else ''}"
    path.write_bytes(data)
    about = f"{path.name}: {about}"
    if random.random() < 0.7:
        return Input((), ACCEPTED if valid else EITHER, about, call=partial(_read_idx, path))
    for name in IMAGES.keys() - {damaged}:
        (sandbox.work / name).write_bytes(idx_file(IMAGES[name]))
    return Input(("data", "check", "mnist", "--data-dir", "."), REFUSED, about)


def _read_idx(path: Path) -> None:
    from unisono.data.idx import read

    found = read(path)
    assert found.array.nbytes <= found.nbytes


def make_text(random: Random, sandbox: Sandbox) -> Input:
    """A text, with options after its name; or the options of made-up data."""
    text = "".join(random.choice("abc é\n") for _ in range(random.choice((0, 1, 30, 900)))).encode()
    options, about, allowed = "context=8", "as it is", EITHER
    if random.random() < VALID:
        text, allowed = b"to be or not to be, that is the question. " * 13, ACCEPTED
    elif random.random() < 0.5:
        text, about = mutate_bytes(random, text)
    else:
        words = [
            f"{random.choice(('context', 'test', 'x', ''))}={random.choice((*ODD_NUMBERS, *ODD_TEXTS))}"
            for _ in range(2)
        ]
        options = ",".join(words[: random.randrange(3)]).replace("\0", "")
        about = options[:40]
    if random.random() < 0.3:
        keys = "rows", "features", "classes", "characters", "context", "test_rows", "noise", "difficulty", "seed"
        numbers = [number for number in ODD_NUMBERS if not 256 < number < 2**40]  # what is large is absurd
        words = [f"{random.choice(keys)}={random.choice(numbers)}" for _ in range(random.randint(1, 3))]
        spec = f"{random.choice(('synthetic', 'synthetic-text'))}:{','.join(words)}"
        return Input(("data", "check", spec), EITHER, spec[:80])
    (sandbox.work / "a.txt").write_bytes(text)
    return Input(("data", "check", f"a.txt:{options}" if options else "a.txt"), allowed, about)


def make_safetensors(random: Random, sandbox: Sandbox) -> Input:
    """Weights without their run: shown, or exported."""
    data = (sandbox.template / "sync" / "weights.safetensors").read_bytes()
    about, allowed = "as it is", ACCEPTED
    if random.random() > VALID:
        data, about = mutate_safetensors(random, data)
        allowed = EITHER
    (sandbox.work / "w.safetensors").write_bytes(data)
    export = random.choice(([], [], ["--export", "x.npz"], ["--export", "x.safetensors"], ["--export", "x.txt"]))
    return Input(("weights", "w.safetensors", *export), allowed, about)


def make_fetch(random: Random, sandbox: Sandbox) -> Input:
    """A server that sends a damaged file, or an odd answer."""
    body, about = idx_file(3), "as it is"
    if random.random() < 0.8:
        body, about = pack_gz(random, mutate_idx(random, body)[0])
    answer, said = _answer(random, body)
    call = partial(_fetch, answer)
    return Input(("data", "fetch", "mnist", "--data-dir", "got"), frozenset({1, 2}), f"{said}; {about}", call=call)


def _answer(random: Random, body: bytes) -> tuple[bytes, str]:
    length = random.choice((len(body), len(body), len(body), 0, -1, 2**40, 2**70, "x", ""))
    first = random.choice((
        "HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.0 200", "HTTP/1.1 206 Partial",
        "HTTP/1.1 302 Found", "HTTP/1.1 404 No",
        "HTTP/9.9 -1", "", "ICY 200 OK", f"HTTP/1.1 {'9' * 5000} OK", "HTTP/1.1 416 Range",
    ))  # fmt: skip
    heads = [f"Content-Length: {length}"] if random.random() < 0.8 else ["Transfer-Encoding: chunked"]
    odd = [
        "Content-Range: bytes 7-x/y", "Location: file:///etc/hostname", "Location: http://[", f"X: {'a' * 70_000}",
        "\x1b[2J: x", "Content-Encoding: gzip",
    ]  # fmt: skip
    heads += random.sample(odd, random.randrange(3))
    head = "\r\n".join([first, *heads, "Connection: close", "", ""]).encode("latin-1")
    answer = head + body
    return (answer, first) if random.random() < 0.7 else (mutate_bytes(random, head)[0] + body, f"damaged {first[:40]}")


def _fetch(answer: bytes) -> None:
    """In the child: serves the answer to whatever is asked, and fetches from there."""
    import sys

    from unisono.cli.main import main

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *given: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.argv += ["--base-url", f"http://127.0.0.1:{server.server_port}", "--timeout-s", "1"]
        main()
