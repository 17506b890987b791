# What scripts/quickstart and scripts/test share: the packages, how to install what is missing, how to build. Sourced by bash.

# Debian 12 names. What they are for and what would replace them: docs/dependencies.md
build_packages=(g++ cmake ninja-build pkg-config ccache mold libfmt-dev libxxhash-dev nlohmann-json3-dev libcli11-dev
                libtomlplusplus-dev libzip-dev libminizip-dev libdeflate-dev libjpeg62-turbo-dev libpng-dev
                llvm-19-dev libzstd-dev zlib1g-dev libdnnl-dev ocl-icd-opencl-dev libopenblas0-pthread)
test_packages=(libgtest-dev clang-19 libclang-rt-19-dev python3)

say() { printf '\n== %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# install_missing PACKAGE... installs those that are not there. Reaches the network only if something is missing.
install_missing() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "no apt-get here: packages are not installed for you. Needed, by their Debian 12 names: $*"
    return 0
  fi
  local package missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    echo "packages: all $# are installed"
    return 0
  fi

  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "no root and no sudo: ask for these packages to be installed: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} of $# packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
       } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install: ${missing[*]}"
  fi
  rm -f "$log"
}

# build PRESET TARGET... configures and builds; the preset's folder is build/PRESET. Returns non-zero on failure.
build() {
  local preset=$1 log
  shift
  log=build/$preset.configure.log
  mkdir -p build
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    return 1
  fi
  NINJA_STATUS='[%f/%t] ' cmake --build --preset "$preset" --target "$@"
}
