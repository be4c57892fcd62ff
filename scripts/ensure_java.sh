#!/usr/bin/env bash
# Makes sure that Spark will find Java 17 or newer, looking where Spark looks: JAVA_HOME first, then PATH.
# As root on a system with apt-get it installs a missing one; otherwise it says what to install. It never calls sudo.
set -euo pipefail

readonly WANTED=17

find_java() {
    if [[ -n "${JAVA_HOME:-}" ]]; then
        echo "$JAVA_HOME/bin/java"
    else
        command -v java || true
    fi
}

# Prints the major version of the given java; nothing when it cannot run (macOS ships a /usr/bin/java that only
# prints advice). Java 8 calls itself 1.8.
major_version() {
    local line
    line=$("$1" -version 2>&1 | grep -m1 ' version "') || return 0
    sed -E 's/.* version "(1\.)?([0-9]+).*/\2/' <<<"$line"
}

# Spark starts its JVM with --add-modules jdk.incubator.vector, which cut-down runtimes lack.
has_vector_module() {
    "$1" --list-modules 2>/dev/null | grep '^jdk\.incubator\.vector' >/dev/null
}

# Sets `problem` to what is wrong with the Java that Spark would use, or to nothing.
diagnose() {
    local java major
    java=$(find_java)
    problem=""
    if [[ -z "$java" ]]; then
        problem="no java on PATH and JAVA_HOME is not set"
    elif [[ ! -x "$java" ]]; then
        problem="JAVA_HOME is $JAVA_HOME, but $java is not an executable file"
    else
        major=$(major_version "$java")
        if [[ -z "$major" ]]; then
            problem="$java does not report a version"
        elif ((major < WANTED)); then
            problem="$java is Java $major"
        elif ! has_vector_module "$java"; then
            problem="$java is Java $major without the module jdk.incubator.vector"
        else
            echo "Java $major: $java"
        fi
    fi
}

give_up() {
    cat >&2 <<EOF
Spark needs a full Java $WANTED or newer. Found: $problem.
Install one, then run this again:
  Debian/Ubuntu   apt-get install openjdk-17-jre-headless   (openjdk-21-jre-headless where 17 is gone)
  Fedora          dnf install java-21-openjdk-headless
  macOS           brew install openjdk@17, then export JAVA_HOME="\$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"
If one is installed already, point JAVA_HOME at its folder.
EOF
    exit 1
}

diagnose
[[ -z "$problem" ]] && exit 0
# Installing a package would not change what JAVA_HOME says.
[[ -n "${JAVA_HOME:-}" ]] && give_up
[[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || give_up

echo "Spark needs Java $WANTED or newer; found: $problem. Installing one with apt-get." >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# Newer Debian releases no longer carry 17.
for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if apt-cache policy "$package" | grep -E 'Candidate: [0-9]' >/dev/null; then
        apt-get install -q -y --no-install-recommends "$package"
        break
    fi
done
diagnose
[[ -z "$problem" ]] || give_up
