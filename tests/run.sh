#!/usr/bin/env bash
# Sets up the machine, builds, and runs the tests.
#   bash tests/run.sh          the quick tier (10 minutes after the set-up)
#   bash tests/run.sh --all    also: reference-stack oracle, both product backends, sanitizers
# WM_BUILD names the build directory (default build/tests). Safe to run twice.
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/setup.sh

all=false
case ${1:-} in
"") ;;
--all) all=true ;;
*)
  sed -n '2,5s/^# //p' "$0"
  exit 2
  ;;
esac

wm_setup
wm_install libcmocka-dev hdf5-tools python3 python3-h5py gnuplot-nox
mkdir -p build
build=${WM_BUILD:-build/tests}
wm_build "$build" -DWM_WERROR=ON
status=0
# A test of several ranks takes both of two cores (PROCESSORS in tests/CMakeLists.txt).
(cd "$build" && ctest -j 2 -LE '^long$' --output-on-failure --timeout 300) || status=1
if $all; then
  bash tests/long.sh "$build" || status=1
fi
exit $status
