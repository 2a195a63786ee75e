#!/usr/bin/env bash
# Builds the documentation into site/ (open site/index.html; no network needed). Any warning is an error.
# With arguments: runs mkdocs with them, such as `bash scripts/docs.sh serve`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
make_venv .venv-docs -e ".[docs]"
export NO_MKDOCS_2_WARNING=1  # of the theme, about a successor that it recommends
if [ $# -gt 0 ]; then exec .venv-docs/bin/mkdocs "$@"; fi
exec .venv-docs/bin/mkdocs build
