#!/bin/sh
# Build the native module in place, for development: `native/build.sh [build|sanitize|test-sanitized]`.
#
# `build` compiles in build/native and then moves the finished module into the package with one
# rename, because other processes may have the old file mapped. Only what changed is compiled.
# `sanitize` builds with the address and undefined-behaviour sanitizers beside a copy of the
# package, and `test-sanitized` runs the kernel tests against that copy.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
PATH=$(dirname "$python"):$PATH
jobs=${LANCELET_BUILD_JOBS:-$(getconf _NPROCESSORS_ONLN)}

compile() { # directory, then more options for cmake
  directory=$1
  shift
  if [ ! -f "$directory/build.ninja" ]; then
    cmake -S "$root/native" -B "$directory" -G Ninja -DPython_EXECUTABLE="$python" "$@" >/dev/null
  fi
  cmake --build "$directory" -j "$jobs"
}

install_module() { # build directory, package directory
  for module in "$1"/_native.*; do
    cp "$module" "$2/kernels/.$(basename "$module").$$"
    mv -f "$2/kernels/.$(basename "$module").$$" "$2/kernels/$(basename "$module")"
  done
}

sanitize() {
  compile "$root/build/sanitize/native" -DLANCELET_SANITIZE=ON
  rm -rf "$root/build/sanitize/package"
  mkdir -p "$root/build/sanitize/package"
  cp -R "$root/src/lancelet" "$root/build/sanitize/package/lancelet"
  rm -f "$root/build/sanitize/package/lancelet/kernels/"_native.*
  install_module "$root/build/sanitize/native" "$root/build/sanitize/package/lancelet"
}

case ${1:-build} in
  build)
    compile "$root/build/native"
    install_module "$root/build/native" "$root/src/lancelet"
    ;;
  sanitize)
    sanitize
    ;;
  test-sanitized)
    sanitize
    cd "$root"
    # The interpreter itself is not built with the sanitizers, so their runtime goes in first.
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
      ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
      PYTHONPATH="$root/build/sanitize/package" \
      "$python" -m pytest tests/unit/kernels -q -x -p no:cacheprovider
    ;;
  *)
    echo "usage: native/build.sh [build|sanitize|test-sanitized]" >&2
    exit 2
    ;;
esac
