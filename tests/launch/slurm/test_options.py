"""What a job may be asked for, and what is refused before anything is written."""

from dataclasses import fields

import pytest

from unisono.errors import UserError
from unisono.launch.slurm.options import JobOptions, check, seconds, warning_s


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("", None), ("UNLIMITED", None), ("90", 5400), ("1:30", 90), ("1:30:05", 5405), ("2-12", 216000),
        ("1-00:30", 88200), ("1-00:00:01", 86401),
    ],
)  # fmt: skip
def test_time_limits_are_read_as_slurm_reads_them(time, expected):
    assert seconds(time) == expected


@pytest.mark.parametrize(
    ("options", "expected"), [({}, 120), ({"time": "60"}, 120), ({"time": "2"}, 30), ({"time": "1"}, 10)]
)
def test_the_warning_comes_earlier_than_a_short_limit(options, expected):
    assert warning_s(JobOptions(**options)) == expected
    assert warning_s(JobOptions(**options, warn_s=7)) == 7


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"nodes": 0}, "--nodes is 0"),
        ({"ranks_per_node": -1}, "--ranks-per-node is -1"),
        ({"max_requeues": -1}, "--max-requeues is -1"),
        ({"join_timeout": float("nan")}, "--join-timeout is nan"),
        ({"join_timeout": float("inf")}, "--join-timeout is inf"),
        ({"launcher": "srnu"}, "did you mean 'srun'"),
        ({"mpi": "pmi3"}, "pmi2"),
        ({"mpi": "pmix", "launcher": "torchrun"}, "--mpi pmix with --launcher torchrun"),
        ({"array": "0..3"}, "--array is '0..3'"),
        ({"mem": "4 GB"}, "--mem is '4 GB'"),
        ({"time": "an hour"}, "--time is 'an hour'"),
        ({"job_name": "a/b"}, "without /"),
        ({"setup": ("one\ntwo",)}, "more than a line"),
        ({"sbatch": ("constraint",)}, "is no option"),
        ({"sbatch": ("--comment=mine",)}, "knows its jobs by their comment"),
        ({"time": "2", "warn_s": 100}, "nothing would be trained"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_given(options, told):
    with pytest.raises(UserError) as caught:
        check(JobOptions(**options))
    assert told in str(caught.value)
    assert "HINT: " in str(caught.value)


@pytest.mark.parametrize(
    "name", [field.name for field in fields(JobOptions) if isinstance(field.default, str) or field.default == ()]
)
def test_no_option_brings_a_directive_of_its_own(name):
    text = "a\n#SBATCH --exclusive"
    with pytest.raises(UserError, match="HINT: "):
        check(JobOptions(**{name: (text,) if JobOptions.__dataclass_fields__[name].default == () else text}))


def test_what_fits_is_not():
    check(JobOptions(nodes=2, launcher="srun", mpi="none", array="0-9:2,12%3", mem="800M", time="1-0", warn_s=60))
    check(JobOptions(time="2", warn_s=100, max_requeues=0))
