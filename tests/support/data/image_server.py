"""A web server on the loopback, and small image sets in MNIST's format for it to serve."""

import gzip
import hashlib
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np

from unisono.data.mnist_sets import NAMES, ImageSet


class Server(HTTPServer):
    """`files` by name; `asked`: each request and its Range; `cuts`: bytes after which the next answers break off."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.cuts: list[int] = []
        self.ranges = True
        self.lie = 0
        self.status = 200
        self.chunked = False
        self.leads_to = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name, wanted = self.path.strip("/"), self.headers.get("Range", "")
        self.server.asked.append((name, wanted))
        self.close_connection = True
        if self.server.leads_to and name != "led":
            self.send_response(302)
            self.send_header("Location", self.server.leads_to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if name not in self.server.files or self.server.status != 200:
            self.send_error(404 if self.server.status == 200 else self.server.status)
            return
        body, start = self.server.files[name], 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start + self.server.lie}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        rest = body[start:]
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))
            return
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.cuts.pop(0)] if self.server.cuts else rest)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def idx_bytes(array: np.ndarray) -> bytes:
    """A uint8 array as an idx file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def image_arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """30 + 10 images of 4 x 3 pixels, all ten classes."""
    rng = np.random.default_rng(seed)
    return {
        "train_x": rng.integers(0, 256, (30, 4, 3), np.uint8),
        "train_y": (np.arange(30) % 10).astype(np.uint8),
        "test_x": rng.integers(0, 256, (10, 4, 3), np.uint8),
        "test_y": np.arange(10).astype(np.uint8),
    }


def image_files(arrays: dict[str, np.ndarray], level: int = 9) -> dict[str, bytes]:
    return {f"{NAMES[key]}.gz": gzip.compress(idx_bytes(array), level) for key, array in arrays.items()}


def image_set(arrays: dict[str, np.ndarray], url: str, system_dirs: tuple[str, ...] = ()) -> ImageSet:
    sums = {key: hashlib.sha256(idx_bytes(array)).hexdigest() for key, array in arrays.items()}
    return ImageSet(url, system_dirs, sums)
