#!/usr/bin/env bash
# Makes sure that tests find the programs of a PostgreSQL server (initdb, postgres); nothing is started by it.
# As root on a system with apt-get it installs them; otherwise it says what to install. It never calls sudo.
set -euo pipefail

# Debian keeps them out of PATH, one folder for each version.
find_server() {
    command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -n 1 || true
}

report() {
    local bin
    bin=$(dirname "$(find_server)")
    echo "PostgreSQL: $("$bin/postgres" --version) in $bin"
}

if [[ -n "$(find_server)" ]]; then
    report
    exit 0
fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    cat >&2 <<EOT
The tests of the PostgreSQL connector need a server's programs, and there is no initdb on PATH nor below /usr/lib/postgresql.
Install them, then run this again:
  Debian/Ubuntu   apt-get install postgresql
  Fedora          dnf install postgresql-server
  macOS           brew install postgresql@17, and put its bin folder on PATH
EOT
    exit 1
fi
echo "No PostgreSQL server found. Installing one with apt-get." >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# The package would start a server of its own: tests start theirs, in a folder and on a port of their own.
mkdir -p /etc/postgresql-common
[[ -e /etc/postgresql-common/createcluster.conf ]] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
apt-get install -q -y --no-install-recommends postgresql
report
