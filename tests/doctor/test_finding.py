from unisono.doctor.finding import Finding, line, record, sentence

OK, WARNING = Finding("cores", "ok", "2"), Finding("host name", "warning", "leads nowhere", "add it")
MISSING, FAILED = Finding("torch", "missing", "not installed", "pip"), Finding("MPI, 2 ranks", "failed", "no", "mend")
BITS = Finding("same bits", "ok", "trained")


def test_a_line_has_the_fix_below_it():
    assert line(OK) == "ok       cores             2"
    first, second = line(WARNING).splitlines()
    assert first == "warning  host name         leads nowhere"
    assert second.strip() == "-> add it"


def test_a_stranger_s_text_cannot_write_to_the_terminal():
    shown = line(Finding("host\x1b[31m", "warning", "a\rb", "c\nd"))
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert len(shown.splitlines()) == 2


def test_it_ends_in_one_plain_sentence():
    assert sentence([OK, BITS]) == "unisono works here, with the same bits on 1 and 2 ranks."
    assert sentence([OK, WARNING, MISSING]) == (
        "unisono should work here; worth a look: host name; done without: torch."
    )
    assert sentence([OK, MISSING, FAILED]).startswith("Something that is installed does not work here: MPI, 2 ranks;")


def test_the_record_holds_everything():
    found = record([OK, FAILED])
    assert [entry["name"] for entry in found["findings"]] == ["cores", "MPI, 2 ranks"]
    assert found["findings"][1]["fix"] == "mend"
    assert found["sentence"] == sentence([OK, FAILED])
