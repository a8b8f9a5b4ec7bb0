# A Spack recipe:
#   spack repo add slurm/packaging/spack
#   spack install wanamaker ^openmpi
# To build the sources at hand instead of fetching them: spack dev-build -d . wanamaker@main
from spack.package import *


class Wanamaker(CMakePackage):
    """Measures, layer by layer, how much of a transformer's MLP nonlinearity is used."""

    license("BSD-3-Clause")
    version("main")

    variant("onednn", default=True, description="oneDNN for the network's matrix products, else CBLAS")
    variant("native", default=True, description="Compile for the instruction set of the build's target")

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3.1:")
    depends_on("hdf5@1.10:+mpi")
    depends_on("scalapack")
    depends_on("lapack")
    depends_on("blas")
    depends_on("openblas threads=openmp", when="^[virtuals=blas] openblas")
    depends_on("onednn", when="+onednn")
    depends_on("libconfig")
    depends_on("jansson")
    depends_on("utf8proc")
    depends_on("xxhash")
    depends_on("random123")
    depends_on("liblbfgs")
    depends_on("gnuplot", type="run")  # the report's figures

    def cmake_args(self):
        return [
            self.define("WM_GEMM", "onednn" if self.spec.satisfies("+onednn") else "cblas"),
            self.define_from_variant("WM_NATIVE", "native"),
            self.define("WM_TESTS", False),
            self.define("WM_HDF5_PKG", "hdf5"),
            self.define("WM_SCALAPACK_LIBRARY", self.spec["scalapack"].libs[0]),
        ]
