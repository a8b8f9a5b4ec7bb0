#!/usr/bin/env bash
# What a Debian 12 machine needs to build wanamaker, and the build itself. Sourced by jobs/demo.sh,
# tests/run.sh and .ci/run; safe to run twice. Functions only; nothing happens on sourcing.
#   wm_install PACKAGE...   installs what is missing (root or sudo), else says what to install
#   wm_setup                the packages of the build
#   wm_unpack PACKAGE DIR   the files of a package, without installing it or being root
#   wm_build DIR [CMAKE OPTION...]
#   wm_cores                cores that this process may use
#   wm_mpirun RANKS THREADS PROGRAM [ARG...]

wm_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

wm_packages=(build-essential cmake pkg-config openmpi-bin libopenmpi-dev libhdf5-openmpi-dev
  libscalapack-openmpi-dev libopenblas-openmp-dev libdnnl-dev libconfig-dev libjansson-dev
  libutf8proc-dev libxxhash-dev librandom123-dev liblbfgs-dev)

# nproc takes the threads of a rank, where they are set, for cores.
wm_cores() {
  env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc
}

wm_missing() {
  local p
  for p in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
  done
}

wm_install() {
  local missing sudo=()
  mapfile -t missing < <(wm_missing "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "missing packages, and neither root nor sudo: apt-get install ${missing[*]}" >&2
      return 1
    }
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}" >&2
  # A new machine may still be updating itself: wait for its lock.
  "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=600 update -qq >&2
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

wm_setup() {
  wm_install "${wm_packages[@]}"
}

# Where apt-get may not write the system's lists, or has none, it gets its own.
wm_unpack() {
  local package=$1 dir options=(-q -o APT::Sandbox::User=) private
  mkdir -p "$2"
  dir=$(realpath -- "$2")
  if ! (cd "$dir" && apt-get "${options[@]}" download "$package") >"$dir/log" 2>&1; then
    private=(-o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache")
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    if ! (cd "$dir" && apt-get "${options[@]}" "${private[@]}" update &&
      apt-get "${options[@]}" "${private[@]}" download "$package") >>"$dir/log" 2>&1; then
      cat -- "$dir/log" >&2
      echo "cannot download the package $package" >&2
      return 1
    fi
  fi
  dpkg-deb -x "$dir/${package}"_*.deb "$dir"
}

wm_build() {
  local dir=$1
  shift
  mkdir -p "$(dirname "$dir")"
  if ! cmake -S "$wm_root" -B "$dir" -DCMAKE_BUILD_TYPE=Release "$@" >"$dir.log" 2>&1 ||
    ! cmake --build "$dir" --parallel "$(wm_cores)" >>"$dir.log" 2>&1; then
    tail -n 40 "$dir.log" >&2
    echo "the build failed; the whole log is in $dir.log" >&2
    return 1
  fi
}

wm_mpirun() {
  local ranks=$1 threads=$2 options=(--bind-to none)
  shift 2
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  [ "$ranks" -le "$(wm_cores)" ] || options+=(--oversubscribe)
  OMP_NUM_THREADS=$threads mpirun "${options[@]}" -n "$ranks" "$@"
}
