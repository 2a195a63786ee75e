from unisono.report.studies.bench import fastest, tables, verdict


def entry(algorithm: str, nbytes: int, median_us: float, ranks: int = 2, correct: bool = True) -> dict:
    return {
        "transport": "shm", "ranks": ranks, "algorithm": algorithm, "nbytes": nbytes, "median_us": median_us,
        "p95_us": median_us, "algorithm_gb_per_s": 1.0, "bus_gb_per_s": 1.0, "sent_bytes_per_rank": None,
        "formula_bytes_per_rank": None, "correct": correct,
    }  # fmt: skip


RECORDS = [entry("ring", 1024, 5), entry("arena", 1024, 2), entry("ring", 4096, 1), entry("arena", 4096, 3)]


def test_the_fastest_is_found_among_the_right_ones():
    assert fastest(RECORDS)[2, 1024]["algorithm"] == "arena"
    wrong = [*RECORDS, entry("tree", 1024, 0.1, correct=False)]
    assert fastest(wrong)[2, 1024]["algorithm"] == "arena"


def test_the_verdict_says_who_wins_where():
    assert verdict(RECORDS).splitlines()[-1] == "Fastest on 2 ranks: shm arena (1 KiB), shm ring (4 KiB)."
    assert "1 cells gave a WRONG result" in verdict([*RECORDS, entry("tree", 1024, 9, correct=False)])


def test_a_table_per_number_of_ranks():
    (two, four) = tables([*RECORDS, entry("ring", 1024, 5, ranks=4)])
    assert (two.row_count, four.row_count) == (4, 1)
