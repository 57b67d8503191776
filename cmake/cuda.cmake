# The CUDA toolkit and NCCL, both optional: headers of either for the module (src/cuda) and for the
# libraries that stand in for them in tests (tests/cuda/double), nvcc for the kernels. No library of
# theirs is linked by anything of ours.
#
#   PARALLAX_CUDA_FOUND      cuda.h and nccl.h are there; target parallax_cuda_headers has them
#   PARALLAX_NVCC            the compiler of kernels, or PARALLAX_NVCC-NOTFOUND
# -DPARALLAX_CUDA=OFF builds as if there were none.

option(PARALLAX_CUDA "Build the GPU module where the CUDA toolkit and NCCL are" ON)
set(PARALLAX_CUDA_FOUND OFF)
if(NOT PARALLAX_CUDA)
  return()
endif()

set(cuda_places ENV CUDA_HOME ENV CUDA_PATH)
find_path(PARALLAX_CUDA_INCLUDE cuda.h HINTS ${cuda_places} PATHS /usr/local/cuda
          PATH_SUFFIXES include)
find_path(PARALLAX_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ${PARALLAX_CUDA_INCLUDE} ${cuda_places}
          PATHS /usr/local/cuda PATH_SUFFIXES include)
find_program(PARALLAX_NVCC nvcc HINTS ${cuda_places} PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(PARALLAX_CUDA_INCLUDE PARALLAX_NCCL_INCLUDE PARALLAX_NVCC)

if(PARALLAX_CUDA_INCLUDE AND PARALLAX_NCCL_INCLUDE)
  set(PARALLAX_CUDA_FOUND ON)
  add_library(parallax_cuda_headers INTERFACE)
  # The system's, for their warnings are not ours.
  target_include_directories(parallax_cuda_headers SYSTEM INTERFACE ${PARALLAX_CUDA_INCLUDE}
                                                                   ${PARALLAX_NCCL_INCLUDE})
endif()
