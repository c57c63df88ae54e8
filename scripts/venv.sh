# Makes .venv and installs Holdfast into it: `sh scripts/venv.sh run|dev PYTHON [chosen]`, from the project's folder.
#
# Does nothing if all is there. A .venv that was left half-made, or whose Python is too old or another than the one
# that it was made with, is made again. "chosen": the caller named PYTHON, so .venv must be of the same version.
set -eu

target=$1
python=$2
chosen=${3:-}
venv=.venv

version() {
    "$1" -c 'import sys; print(sys.version.split()[0])' 2>/dev/null
}

minor_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

is_supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The first stamp is written when an installation has succeeded. After an upgrade of the system's Python the version in
# pyvenv.cfg is another than that of the interpreter, which then finds no packages.
is_usable() {
    [ -e "$venv/.stamp-run" ] && is_supported "$venv/bin/python" && "$venv/bin/python" -c '
import sys
with open(sys.prefix + "/pyvenv.cfg") as file:
    settings = dict(line.split(" = ", 1) for line in file if " = " in line)
made_with = settings.get("version") or settings.get("version_info") or ""
sys.exit(made_with.split(".")[:2] != sys.version.split(".")[:2])
' 2>/dev/null
}

is_wanted() {
    [ -z "$chosen" ] || [ "$(minor_version "$venv/bin/python")" = "$(minor_version "$python")" ]
}

refuse() {
    found=$(version "$python") && found="$python is Python $found" || found="there is no $python here"
    echo "Holdfast needs Python 3.11 or newer, but $found: name a newer one, as in \"make run PYTHON=python3.12\"." >&2
    exit 1
}

if ! { is_usable && is_wanted; }; then
    is_supported "$python" || refuse
    "$python" -m venv --clear "$venv" || { rm -rf "$venv"; exit 1; }
fi

stamp=$venv/.stamp-$target
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ constraints.txt -nt "$stamp" ]; then
    [ "$target" = dev ] && what='.[dev]' || what=.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "$what"
    touch "$venv/.stamp-run" "$stamp"
fi
