# Looks for known vulnerabilities of the versions in constraints.txt: `sh scripts/audit.sh PYTHON`, from the project's folder.
#
# Needs a package index and its advisory service. pip-audit has an environment of its own, so that it changes no tested version.
set -eu

venv=.venv/audit
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

fail() {
    cat "$errors" >&2
    echo "$1" >&2
    exit 2
}

if [ ! -x "$venv/bin/pip-audit" ]; then
    "$1" -m venv --clear "$venv" || exit 2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check pip-audit 2>"$errors" ||
        fail "Nothing was checked: pip-audit cannot be installed from this machine's package index."
fi

# Strict: a package that the service does not answer for would count as one without vulnerabilities.
code=0
"$venv/bin/pip-audit" --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off 2>"$errors" || code=$?
if [ "$code" -ne 0 ] && ! grep -q '^Found ' "$errors"; then
    fail "The versions are not checked: pip-audit did not get an answer from the advisory service for every package."
fi
cat "$errors"
exit "$code"
