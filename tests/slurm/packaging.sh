#!/usr/bin/env bash
# The Spack recipe asks for everything that jobs/setup.sh installs: a library that is added there and forgotten here would
# be missed on somebody's cluster.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=jobs/setup.sh
source jobs/setup.sh
recipe=slurm/packaging/spack/packages/wanamaker/package.py

declare -A spack=([build-essential]=c [cmake]=cmake [pkg-config]=pkgconfig [openmpi-bin]=mpi [libopenmpi-dev]=mpi
  [libhdf5-openmpi-dev]=hdf5 [libscalapack-openmpi-dev]=scalapack [libopenblas-openmp-dev]=openblas [libdnnl-dev]=onednn
  [libconfig-dev]=libconfig [libjansson-dev]=jansson [libutf8proc-dev]=utf8proc [libxxhash-dev]=xxhash
  [librandom123-dev]=random123 [liblbfgs-dev]=liblbfgs [gnuplot-nox]=gnuplot)
forgotten=0
for package in "${wm_packages[@]}" gnuplot-nox; do
  name=${spack[$package]:-}
  if [ -z "$name" ]; then
    echo "FAILED: $package has no name in Spack here" >&2
    forgotten=1
  elif ! grep -E "depends_on\\(\"${name}[\"@: ]" $recipe >/dev/null; then
    echo "FAILED: $recipe does not depend on $name ($package)" >&2
    forgotten=1
  fi
done
python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' $recipe
[ $forgotten -eq 0 ] && echo "the recipe asks for all ${#wm_packages[@]} packages"
