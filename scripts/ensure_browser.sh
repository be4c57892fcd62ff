#!/usr/bin/env bash
# Makes sure that the tests of the web page find a Chromium. As root on a system with apt-get it installs a missing one;
# otherwise it lets Playwright fetch its own build. It never calls sudo. Usage: ensure_browser.sh PYTHON
set -euo pipefail

readonly PYTHON=${1:?the interpreter that has playwright}

found() {
    "$PYTHON" -c 'import sys; from tests.servers.browser import find; sys.exit(find() is None)'
}

found && exit 0
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "The tests of the web page need Chromium: installing it with apt-get." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core || true # Ubuntu has it only as a snap
fi
found && exit 0
"$PYTHON" -m playwright install chromium || true
found && exit 0
echo "No Chromium: install one (apt-get install chromium, dnf install chromium, or Chrome), or name it in PENSTOCK_CHROMIUM." >&2
exit 1
