"""The screen on a terminal, read through a small emulation of one, and on a file."""

import errno
import io
import os
import re
import termios
import threading
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from unisono.messages.rank_reports import Progress
from unisono.report.terminal import progress_bar as module
from unisono.report.terminal.progress_bar import Screen

NEWS = Progress(epoch=1, step=12, steps=23, samples_per_s=129389.4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(written: str) -> list[str]:
    """What a terminal shows down to its cursor: new lines, cursor up, erased lines; colours are nothing to see."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", written):
        if token == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token == "\x1b[1A":
            row -= 1
        elif token == "\r":
            continue  # always before something that erases or ends the line
        elif not token.startswith("\x1b"):
            lines[row] += token
    assert not any(lines[row + 1 :])
    return lines[: row + 1]


def is_cursor_visible(stream: Terminal) -> bool:
    return stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")


@pytest.fixture(autouse=True)
def _every_news_is_drawn(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


def test_the_bar_is_below_the_lines_and_nothing_of_it_is_left(monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", partial(next, count(100.0, 0.001)))
    stream = Terminal()
    before = threading.active_count()
    with Screen(epochs=20, stream=stream) as screen:
        screen.say("opening")
        screen.progress(NEWS)
        assert threading.active_count() == before
        assert is_cursor_visible(stream)  # a command that is killed cannot bring it back
        shown = lines_of(stream.getvalue())
        assert shown[0] == "opening"
        assert re.fullmatch(r"epoch 1/20 +[╸━]+ +step 12/23 +129,389 samples/s *", shown[1])
        screen.progress(replace(NEWS, step=13))
        assert re.search(r"step 13/23 .* 0:0. left", lines_of(stream.getvalue())[1])
        screen.say("epoch 1/20\nand a second line")
        screen.progress(replace(NEWS, epoch=2, step=1))
        assert lines_of(stream.getvalue())[:3] == ["opening", "epoch 1/20", "and a second line"]
        assert lines_of(stream.getvalue())[3].startswith("epoch 2/20")
    assert lines_of(stream.getvalue()) == ["opening", "epoch 1/20", "and a second line", ""]
    assert is_cursor_visible(stream)


def test_an_interrupt_leaves_no_bar():
    stream = Terminal()
    screen = Screen(epochs=20, stream=stream)

    def work() -> None:
        with screen:
            screen.progress(NEWS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lines_of(stream.getvalue()) == [""]


def test_the_bar_is_not_drawn_more_often_than_anybody_reads(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.1)
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = Terminal()
    with Screen(epochs=20, stream=stream) as screen:
        for step in range(1, 24):
            now[0] += 0.01
            screen.progress(replace(NEWS, step=step))
        drawn = re.findall(r"step (\d+)/23", stream.getvalue())
    assert len(drawn) == 3
    assert drawn[0] == "1"


def test_the_time_left_is_that_of_the_whole_run(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = Terminal()
    with Screen(epochs=2, stream=stream) as screen:
        screen.progress(Progress(epoch=1, step=10, steps=100, samples_per_s=1.0))
        assert "left" not in stream.getvalue()
        now[0] += 600
        screen.progress(Progress(epoch=2, step=10, steps=100, samples_per_s=1.0))
        assert "9:00 left" in stream.getvalue()  # 100 steps took 10 minutes, 90 are left


def test_a_narrow_terminal_still_has_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    with Screen(epochs=20, stream=stream) as screen:
        screen.progress(NEWS)
        assert len(lines_of(stream.getvalue())) == 1
        assert len(lines_of(stream.getvalue())[0]) <= 30


@pytest.mark.parametrize("term", ["", "dumb"])
def test_no_bar_but_lines_elsewhere(monkeypatch, term):
    """FORCE_COLOR makes rich take any file for a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", term or "xterm")
    stream = Terminal() if term else io.StringIO()
    with Screen(epochs=20, stream=stream) as screen:
        screen.progress(NEWS)
        screen.say("epoch 1/20")
    assert stream.getvalue() == "epoch 1/20\n"


def test_a_real_terminal():
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with open(theirs, "w") as stream, Screen(epochs=20, stream=stream) as screen:
        screen.say("opening")
        screen.progress(NEWS)
        screen.close()
        screen.say("end")
        written = ""
        while "end" not in written:
            written += os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert lines_of(written)[:2] == ["opening", "end"]


class Full(io.StringIO):
    number = errno.ENOSPC

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_a_line_that_finds_no_room_or_no_reader_does_not_end_the_training(number, monkeypatch):
    monkeypatch.setattr(Full, "number", number)
    Screen(epochs=1, stream=Full()).say("epoch 1/1")


def test_a_closed_standard_output_is_none(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    Screen(epochs=1).say("epoch 1/1")


def test_warnings_go_to_standard_error(capsys):
    stream = Terminal()
    with Screen(epochs=20, stream=stream) as screen:
        screen.progress(NEWS)
        screen.warn("unisono: no room")
    assert lines_of(stream.getvalue()) == [""]
    assert capsys.readouterr().err == "unisono: no room\n"
