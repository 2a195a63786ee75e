"""Both sides prove the secret; nobody else gets in, and nothing that was recorded or altered is taken."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.comm.topology import authentication
from unisono.comm.topology.authentication import ANSWER_BYTES, Channel, Hello, Refused, Secret, Verdict, judge, respond

OURS, OTHER = Secret(b"the secret of these tests", "the test"), Secret(b"the secret of somebody else", "elsewhere")


def shake(caller: Secret, listener: Secret) -> tuple[Verdict, Channel]:
    """What each side has afterwards."""
    hello = Hello.fresh()
    answer, claim = respond(caller, Hello.parse(hello.packed()), "n2")
    verdict = judge(listener, hello, answer)
    return verdict, claim.check(verdict.reply)


def test_those_who_know_the_secret_can_talk():
    verdict, channel = shake(OURS, OURS)
    assert verdict.channel is not None
    for number in range(3):
        assert verdict.channel.unseal(channel.seal(b"ask %d" % number)) == b"ask %d" % number
        assert channel.unseal(verdict.channel.seal(b"")) == b""


def test_another_secret_is_refused():
    hello = Hello.fresh()
    answer, claim = respond(OTHER, hello, "n2")
    verdict = judge(OURS, hello, answer)
    assert (verdict.channel, verdict.reason) == (None, "(n2) it has another secret")
    with pytest.raises(Refused, match="it has another secret than this machine") as caught:
        claim.check(verdict.reply)
    assert caught.value.secret


def test_a_false_main_that_welcomes_everybody_is_refused():
    hello = Hello.fresh()
    answer, claim = respond(OURS, hello, "n2")
    for reply in (b"+" + bytes(32), b"+" + answer[42:74], judge(OTHER, hello, respond(OTHER, hello, "n2")[0]).reply):
        with pytest.raises(Refused, match="it does not know the secret, so nothing was told to it"):
            claim.check(reply)


def test_an_answer_that_was_recorded_is_refused():
    first = Hello.fresh()
    answer, _ = respond(OURS, first, "n2")
    assert judge(OURS, first, answer).channel is not None
    assert judge(OURS, Hello.fresh(), answer).channel is None


def test_an_answer_is_no_reply():
    """Roles differ: what one side says is of no use as the other's proof."""
    hello = Hello.fresh()
    answer, claim = respond(OURS, hello, "")
    with pytest.raises(Refused):
        claim.check(b"+" + answer[42:74])


@given(st.binary(min_size=ANSWER_BYTES, max_size=ANSWER_BYTES), st.booleans())
def test_garbage_is_refused(data, begins_well):
    if begins_well:
        data = struct.pack(">8sH", authentication.MAGIC, authentication.VERSION) + data[10:]
    assert judge(OURS, Hello.fresh(), data).channel is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda first, second: (first, first),
        lambda first, second: (second, first),
        lambda first, second: (first, second[:-1] + b"?"),
        lambda first, second: (first, b"\0" + second[1:]),
        lambda first, second: (first, second[:32]),
        lambda first, second: (first, b""),
    ],
    ids=["repeated", "in another order", "altered", "another MAC", "cut", "empty"],
)
def test_messages_that_are_not_the_next_one_are_refused(spoil):
    verdict, channel = shake(OURS, OURS)
    assert verdict.channel is not None
    arriving = spoil(channel.seal(b"first"), channel.seal(b"second"))
    with pytest.raises(Refused):
        list(map(verdict.channel.unseal, arriving))


def test_a_message_is_of_one_direction_and_one_connection():
    verdict, channel = shake(OURS, OURS)
    other, _ = shake(OURS, OURS)
    sealed = channel.seal(b"ask")
    for receiver in (channel, other.channel):
        assert receiver is not None
        with pytest.raises(Refused):
            receiver.unseal(sealed)
    assert verdict.channel is not None
    assert verdict.channel.unseal(sealed) == b"ask"


def test_another_version_is_named_on_both_sides(monkeypatch):
    hello = Hello.fresh()
    monkeypatch.setattr(authentication, "VERSION", 7)
    answer, claim = respond(OURS, hello, "n2")
    with pytest.raises(Refused, match="it speaks version 1 of the protocol, and this machine version 7"):
        claim.check(b"+" + bytes(32))
    monkeypatch.undo()
    verdict = judge(OURS, hello, answer)
    assert verdict.reason == "(n2) it speaks version 7 of the protocol, and this machine version 1"
    with pytest.raises(Refused, match="another version"):
        respond(OURS, hello, "n2")[1].check(verdict.reply)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "ä" * 40, ""], ids=repr)
def test_names_that_are_not_printable_are_not_shown(name):
    hello = Hello.fresh()
    assert judge(OURS, hello, respond(OTHER, hello, name)[0]).reason == "it has another secret"


def test_a_secret_is_not_shown():
    _, claim = respond(OURS, Hello.fresh(), "n2")
    assert "tests" not in repr(OURS) + repr(claim)
