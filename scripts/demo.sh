#!/usr/bin/env bash
# Installs unisono with its core dependencies into .venv and measures all-reduce on 2 ranks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
make_venv .venv -e .
exec .venv/bin/unisono bench --ranks 2 "$@"
