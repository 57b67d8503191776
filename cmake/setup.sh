# shellcheck shell=bash
# Shell functions shared by tests/run and bench/run. Source it; it runs nothing by itself and is
# safe under `set -euo pipefail`.
#
#   parallax_install_packages [PACKAGE...]   installs what is missing of cmake/packages.txt and of
#                                            those named
#   parallax_install_wanted [FILE]           installs what single tests want, if that can be had:
#                                            of cmake/packages.txt those with "?", or all of FILE
#   parallax_build PRESET [TARGET...] configures and builds; PARALLAX_CMAKE_ARGS holds extra options
#   parallax_bench DRIVER [WORD...]   installs, builds the benches, and becomes a driver in Python

parallax_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Of the packages named, one a line, those that are not installed.
parallax_not_installed() {
  local package
  while read -r package; do
    if ! dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
      printf '%s\n' "$package"
    fi
  done
}

# Prints the packages of cmake/packages.txt, and of those named, that are not installed.
parallax_missing_packages() {
  {
    grep -Ev '^[[:space:]]*(#|$)|[?]$' "$parallax_root/cmake/packages.txt"
    if (($# > 0)); then printf '%s\n' "$@"; fi
  } | parallax_not_installed
}

# Installs what single tests want, where it can be had without asking, and tries once in a tree:
# nothing fails without it. parallax_install_packages goes before.
parallax_install_wanted() {
  command -v apt-get >/dev/null || return 0
  local tried=$parallax_root/build/packages-tried
  local command=(env DEBIAN_FRONTEND=noninteractive apt-get)
  ((EUID == 0)) || command=(sudo -n "${command[@]}")
  local package wanted='s/[?]$//p' file=$parallax_root/cmake/packages.txt
  if (($# > 0)); then
    file=$1 wanted='/^[[:space:]]*\(#\|$\)/!p'
  fi
  mkdir -p "$parallax_root/build"
  touch "$tried"
  sed -n "$wanted" "$file" | parallax_not_installed |
    while read -r package; do
      grep -qx "$package" "$tried" && continue
      echo "$package" >>"$tried"
      echo "packages: ${command[*]} install -y --no-install-recommends $package"
      "${command[@]}" install -y --no-install-recommends "$package" </dev/null ||
        echo "packages: $package could not be installed; the tests that need it are skipped"
    done
}

# Installs what is missing and nothing else; with nothing missing it needs neither root nor network.
parallax_install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "packages: no Debian or Ubuntu; what cmake/packages.txt lists has to be here already"
    return 0
  fi
  local missing
  mapfile -t missing < <(parallax_missing_packages "$@")
  local command=(env DEBIAN_FRONTEND=noninteractive apt-get)
  ((EUID == 0)) || command=(sudo "${command[@]}")
  if ((EUID != 0 && ${#missing[@]} > 0)) && ! command -v sudo >/dev/null; then
    echo "packages: there is no sudo; as root, run: apt-get install ${missing[*]}" >&2
    return 1
  fi
  if ((${#missing[@]} == 0)); then
    echo "packages: nothing is missing"
    return 0
  fi
  local install=("${command[@]}" install -y --no-install-recommends "${missing[@]}")
  echo "packages: ${install[*]}"
  # The lists of packages are fetched only when those at hand do not do.
  if ! "${install[@]}" </dev/null; then
    echo "packages: ${command[*]} update"
    "${command[@]}" update </dev/null || return 1
    echo "packages: ${install[*]}"
    "${install[@]}" </dev/null || {
      echo "packages: could not install ${missing[*]}" >&2
      return 1
    }
  fi
}

# parallax_show NAME [SECONDS]: copies standard input except for ninja's lines of progress, such as
# "[3/131] ...". When nothing was said for SECONDS, it says how far things are.
parallax_show() {
  local name=$1 seconds=${2:-8} line part='' count='still at it' last=$SECONDS start=$SECONDS status
  while :; do
    status=0
    IFS= read -r -t 2 line || status=$?
    part+=$line
    if ((status == 0 || status <= 128)); then  # a line, or the end and what came before it
      if [[ $part =~ ^\[([0-9]+/[0-9]+)\] ]]; then
        count="${BASH_REMATCH[1]} steps done"
      elif ((status == 0)) || [[ -n $part ]]; then
        printf '%s\n' "$part"
        last=$SECONDS
      fi
      part=''
      ((status == 0)) || return 0
    fi
    if ((SECONDS - last >= seconds)); then
      echo "$name: $count after $((SECONDS - start)) s"
      last=$SECONDS
    fi
  done
}

# On a terminal ninja shows its progress; elsewhere what fails or warns, and a line every 10 s.
parallax_build() {
  local preset=$1
  shift
  local build=$parallax_root/build/$preset
  local jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  local log=$build/configure.log
  mkdir -p "$build"
  local configure=(cmake --preset "$preset" ${PARALLAX_CMAKE_ARGS[@]+"${PARALLAX_CMAKE_ARGS[@]}"})
  echo "configure: ${configure[*]} (log: build/$preset/configure.log)"
  if ! (
    set -o pipefail
    cd "$parallax_root"
    { "${configure[@]}" >"$log" 2>&1; } | parallax_show configure
  ); then
    cat "$log" >&2
    echo "configure: preset $preset failed" >&2
    return 1
  fi
  sed -n 's/^-- //; /^libparallax [0-9]/,/^$/p' "$log"
  local command=(cmake --build "$build" -j "$jobs")
  if (($# > 0)); then
    command+=(--target "$@")
  fi
  echo "build: cmake --build build/$preset -j $jobs ${*:+--target $*}"
  local start=$SECONDS status=0
  if [[ -t 1 ]]; then
    "${command[@]}" || status=$?
  else
    (
      set -o pipefail
      NINJA_STATUS='[%f/%t] ' "${command[@]}" 2>&1 | parallax_show build
    ) || status=$?
  fi
  if ((status != 0)); then
    echo "build: preset $preset failed" >&2
    return 1
  fi
  echo "build: $preset is ready after $((SECONDS - start)) s"
}

# With --help the driver alone.
parallax_bench() {
  local driver=$1 python=/usr/bin/python3 word
  shift
  for word in "$@"; do
    case $word in
      --help | -h) exec "$python" "$driver" --help ;;
    esac
  done
  parallax_install_packages
  PARALLAX_CMAKE_ARGS=(-DPARALLAX_BUILD_BENCH=ON)
  parallax_build release bench parallax_tool
  exec "$python" "$driver" "$@"
}
