#!/usr/bin/env bash
# Installs all that the tests need into .venv-test, then lint, types and tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
# A memory fence for processors other than x86-64; everywhere part of the tests. Without it those are skipped.
ldconfig -p 2>/dev/null | grep -q libatomic.so.1 || system_packages libatomic1 || true
# A browser that opens reports. Without it those tests are skipped.
command -v chromium >/dev/null || system_packages chromium || true
# A SLURM cluster on this machine, in name spaces. Without it, or without root, those tests are skipped.
[ -x /usr/sbin/slurmctld ] || system_packages slurmctld slurmd slurm-client munge libpmix-dev iproute2 || true
# Looks at the scripts that unisono submit writes. Without it one test is skipped.
command -v shellcheck >/dev/null || system_packages shellcheck || true
# torch first and pinned: other packages then take the one that is there.
make_venv .venv-test torch -e ".[test]"
bin=.venv-test/bin
$bin/ruff check .
$bin/ruff format --check .
$bin/mypy
if [ $# -gt 0 ]; then $bin/python -m pytest "$@"; else $bin/python scripts/run_tests.py; fi
