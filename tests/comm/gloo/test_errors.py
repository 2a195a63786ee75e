"""What gloo's texts mean."""

import pytest

from unisono.comm.gloo.errors import GlooFailure, read_gloo_error

PLACE = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{PLACE}Connection closed by peer [10.0.0.1]:4711", GlooFailure("10.0.0.1 is gone", "10.0.0.1")),
        (f"{PLACE}Connection reset by peer [10.0.0.11]:1", GlooFailure("10.0.0.11 is gone", "10.0.0.11")),
        ("Read error [fd00::a:1]:4711: Connection reset by peer", GlooFailure("fd00::a:1 is gone", "fd00::a:1")),
        ("[10.0.0.2]:9: Connection timed out", GlooFailure("10.0.0.2 does not answer any more", "10.0.0.2")),
        ("[10.0.0.2]:9: No route to host", GlooFailure("10.0.0.2 cannot be reached any more", "10.0.0.2")),
        ("Connection closed by somebody", GlooFailure("the other side is gone")),
        ("something new of [10.0.0.7]:8", GlooFailure("something new of [10.0.0.7]:8", "10.0.0.7")),
        (f"{PLACE}Timed out waiting 1000ms", GlooFailure(f"{PLACE}Timed out waiting 1000ms", timed_out=True)),
    ],
)  # fmt: skip
def test_texts_become_facts(text, found):
    assert read_gloo_error(RuntimeError(text)) == found
