# Writes constraints.txt anew: `sh scripts/constraints.sh PYTHON`, from the project's folder.
#
# Installs the newest versions that pyproject.toml allows into an environment of its own, and keeps only their list.
set -eu

venv=.venv/constraints
trap 'rm -rf "$venv" constraints.txt.new' EXIT

"$1" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[bedrock,dev,documents,embeddings,google,mistral,otel,redis]'
"$venv/bin/python" scripts/constraints.py >constraints.txt.new
mv constraints.txt.new constraints.txt
echo "constraints.txt is new. Run \"make test\" before you commit it."
