#!/usr/bin/env bash
# Everything that building, testing and the demo need: Debian packages, a Python environment in
# .venv, and the report's charts in build/echarts. Installs only what is missing. A stamp in .venv,
# named by what this script and its lists say, makes a second run do nothing.
#
#   tools/setup.sh           install what is missing
#   tools/setup.sh --check   only say what is missing; exit status 1 if anything is
#
# PYTHON names the interpreter of the environment (default python3, 3.10 or newer), OS_RELEASE the
# file that says which system this is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PACKAGES=(
  g++ make cmake ninja-build ccache mold git clang clang-format
  libhwy-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libspdlog-dev libfmt-dev
  libicu-dev libpcre2-dev libgtest-dev libgmock-dev libbenchmark-dev
  python3-venv python3-dev
  libsword-utils sword-text-web sword-text-kjv sword-text-sparv
  chromium chromium-driver
)
# Where there is no dpkg, what shows that the package's content is there.
readonly PROBES=(
  g++:g++ make:make cmake:cmake ninja-build:ninja ccache:ccache mold:mold git:git clang:clang++
  clang-format:clang-format libhwy-dev:hwy/highway.h nlohmann-json3-dev:nlohmann/json.hpp
  libcli11-dev:CLI/CLI.hpp libtomlplusplus-dev:toml++/toml.h libspdlog-dev:spdlog/spdlog.h
  libfmt-dev:fmt/core.h libicu-dev:unicode/uchar.h libpcre2-dev:pcre2.h
  libgtest-dev:gtest/gtest.h libgmock-dev:gmock/gmock.h libbenchmark-dev:benchmark/benchmark.h
  libsword-utils:mod2imp chromium:chromium chromium-driver:chromedriver
)
readonly PYTHON=${PYTHON:-python3}
readonly OS_RELEASE=${OS_RELEASE:-/etc/os-release}
readonly VENV=.venv

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'error: setup: %s\n' "$*" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# --- the stamp -------------------------------------------------------------------------------
stamp_name() { cat tools/setup.sh tools/requirements.txt | sha256sum | cut -c1-16; }
stamp_path() { printf '%s/.setup-%s' "$VENV" "$(stamp_name)"; }

# The stamp counts only while the environment and the main tools behind it are still there.
is_set_up() {
  [[ -e $(stamp_path) && -x $VENV/bin/python ]] && has cmake && has ninja && has g++ && has mold
}

# --- packages of the system ------------------------------------------------------------------
is_debian() {
  has dpkg-query && has apt-get && [[ -r $OS_RELEASE ]] &&
    (. "$OS_RELEASE" && [[ " ${ID:-} ${ID_LIKE:-} " == *" debian "* ]])
}

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

missing_packages() {
  local package
  for package in "${PACKAGES[@]}"; do
    is_installed "$package" || printf '%s\n' "$package"
  done
  # Debian's npm cannot stand beside a nodejs that brings its own.
  has npm || printf 'npm\n'
  # The sanitizer and fuzzer runtimes of the default clang, named by its version.
  if has clang; then
    local runtime
    runtime=libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev
    is_installed "$runtime" || printf '%s\n' "$runtime"
  fi
}

# Elsewhere: commands and headers instead of packages.
missing_probes() {
  local probe thing
  for probe in "${PROBES[@]}" npm:npm; do
    thing=${probe#*:}
    if [[ $thing == *.h || $thing == *.hpp ]]; then
      has_header "$thing" || printf '%s\n' "$probe"
    else
      has "$thing" || printf '%s\n' "$probe"
    fi
  done
}

has_header() {
  has g++ && printf '#include <%s>\n' "$1" | g++ -std=c++20 -x c++ -fsyntax-only - 2>/dev/null
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif [[ -t 0 ]]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

apt_install() {
  local packages=("$@")
  if [[ $(id -u) != 0 ]] && ! has sudo; then
    die "these packages are missing, and installing them needs root or sudo:
  apt-get install ${packages[*]}"
  fi
  say "installing ${#packages[@]} packages: ${packages[*]}"
  if [[ -z ${apt_updated:-} ]]; then
    as_root apt-get update -q || die "apt-get update failed"
    apt_updated=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
    "${packages[@]}" </dev/null || die "apt-get could not install: ${packages[*]}"
}

install_system() {
  local missing
  if is_debian; then
    mapfile -t missing < <(missing_packages)
    [[ ${#missing[@]} == 0 ]] || apt_install "${missing[@]}"
    mapfile -t missing < <(missing_packages)  # clang's runtime, known once clang is there
    [[ ${#missing[@]} == 0 ]] || apt_install "${missing[@]}"
    return
  fi
  mapfile -t missing < <(missing_probes)
  [[ ${#missing[@]} == 0 ]] || die "packages are installed for you on Debian 12 and 13 only. Missing here:
$(printf '%s\n' "${missing[@]}" | awk -F: '{ printf "  %-28s (in Debian package %s)\n", $2, $1 }')
Install them with the package manager of this system, then run this again."
}

# --- Python ----------------------------------------------------------------------------------
check_python() {
  has "$PYTHON" || die "$PYTHON is missing: Python 3.10 or newer, with venv, is needed"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "Python 3.10 or newer is needed; $PYTHON is $("$PYTHON" -V 2>&1). Set PYTHON to another"
}

install_python() {
  check_python
  if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    say "creating $VENV with $("$PYTHON" -V)"
    "$PYTHON" -m venv --clear "$VENV" ||
      die "$PYTHON -m venv failed (Debian: package python3-venv)"
  fi
  local pip=("$VENV/bin/python" -m pip install -q --disable-pip-version-check)
  local torch
  torch=$(grep '^torch==' tools/requirements.txt)
  say "Python packages: $torch first, then tools/requirements.txt"
  "${pip[@]}" "$torch" || die "pip could not install $torch"
  "${pip[@]}" -r tools/requirements.txt || die "pip could not install tools/requirements.txt"
}

main() {
  if [[ ${1:-} == --check ]]; then
    local missing
    if is_debian; then missing=$(missing_packages); else missing=$(missing_probes); fi
    [[ -e $(stamp_path) ]] || missing+=$'\n'"$VENV (Python packages of tools/requirements.txt)"
    [[ -n ${missing//$'\n'/} ]] || return 0
    printf 'missing:\n%s\n' "$missing"
    return 1
  fi
  [[ $# == 0 ]] || die "unknown option $1; usage: tools/setup.sh [--check]"
  if ! is_set_up; then
    install_system
    install_python
    rm -f "$VENV"/.setup-*
    touch "$(stamp_path)"
    say "done"
  fi
  tools/bundle_echarts.sh  # has a stamp of its own, in build/
}

main "$@"
