#!/bin/sh
# Builds the bindings and runs their tests. For C: the header is that of the sources; the examples, built by the system's compiler,
# receive streams of ffmpeg. For Python: a wheel in an environment of its own, with the versions of python/requirements.txt.
#
#   sh bindings/test.sh
set -eu
cd "$(dirname "$0")"

CARGO_TARGET_DIR=../target
export CARGO_TARGET_DIR
cargo fmt --all --check
cargo clippy --quiet --locked --all-targets -- -D warnings
cargo test --quiet --locked --lib --tests
cargo build --quiet --locked

examples=../target/bindings
mkdir -p "$examples"
for example in srt_listener whip_server; do
    cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I c/include "c/examples/$example.c" ../target/debug/libmillstream.a \
        -lpthread -ldl -lm -o "$examples/$example"
done
# The header in C++, and the shared library.
printf '#include "millstream.h"\nint main() { millstream_srt_free(nullptr); return 0; }\n' >"$examples/header.cpp"
c++ -Wall -Werror -I c/include "$examples/header.cpp" -L../target/debug -lmillstream -o "$examples/header"
LD_LIBRARY_PATH=../target/debug "$examples/header"

ffmpeg=$(find ../tests/.venv/lib/ -path '*imageio_ffmpeg/binaries/ffmpeg-*' 2>/dev/null | head -1)
[ -n "$ffmpeg" ] || { echo "no ffmpeg with WHIP: run tests/install.sh" >&2; exit 1; }
python3 c/tests/run.py "$examples" "$ffmpeg"

environment=../target/bindings/python
if ! cmp -s python/requirements.txt "$environment/installed"; then
    python3 -m venv --clear "$environment"
    "$environment/bin/pip" install -q --disable-pip-version-check -r python/requirements.txt
    cp python/requirements.txt "$environment/installed"
fi
PATH=$PWD/$environment/bin:$PATH
rm -rf ../target/bindings/wheels
maturin build --quiet --profile dev --manifest-path python/Cargo.toml --out ../target/bindings/wheels
pip install -q --disable-pip-version-check --no-index --no-deps --force-reinstall ../target/bindings/wheels/*.whl
PYTHONDONTWRITEBYTECODE=1 python -m pytest -q -p no:cacheprovider python
