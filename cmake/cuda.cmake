# The CUDA toolkit and NCCL, both optional: headers of either for the module (src/cuda) and for the
# libraries that stand in for them in tests (tests/cuda/double), nvcc for the kernels. No library of
# theirs is linked by anything of ours.
#
#   PARALLAX_CUDA_FOUND      cuda.h and nccl.h are there, and new enough; target
#                            parallax_cuda_headers has them
#   PARALLAX_NCCL_VERSION    of that nccl.h, "2.28"
#   PARALLAX_CUDA_TOO_OLD    which of them is older than the module takes, or ""
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

# What the module cannot do without (src/cuda/driver_api.h, nccl_api.h); the rest is probed.
set(cuda_least 11.4)
set(nccl_least 2.18)
# The doubles of tests have all of it.
set(PARALLAX_NCCL_OF_TESTS 2.28)

set(PARALLAX_CUDA_TOO_OLD "")
if(PARALLAX_CUDA_INCLUDE AND PARALLAX_NCCL_INCLUDE)
  file(STRINGS ${PARALLAX_CUDA_INCLUDE}/cuda.h line REGEX "^#define CUDA_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+" number "${line}")
  math(EXPR major "0${number} / 1000")
  math(EXPR minor "0${number} % 1000 / 10")
  set(cuda_version ${major}.${minor})
  file(STRINGS ${PARALLAX_NCCL_INCLUDE}/nccl.h lines REGEX "^#define NCCL_M(AJOR|INOR) +[0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" lines "${lines}")
  list(JOIN lines "." PARALLAX_NCCL_VERSION)
  if(cuda_version VERSION_LESS cuda_least)
    set(PARALLAX_CUDA_TOO_OLD "cuda.h is of ${cuda_version}, ${cuda_least} is the least")
  elseif(PARALLAX_NCCL_VERSION VERSION_LESS nccl_least)
    set(PARALLAX_CUDA_TOO_OLD "nccl.h is of ${PARALLAX_NCCL_VERSION}, ${nccl_least} is the least")
  endif()
endif()

if(PARALLAX_CUDA_INCLUDE AND PARALLAX_NCCL_INCLUDE AND NOT PARALLAX_CUDA_TOO_OLD)
  set(PARALLAX_CUDA_FOUND ON)
  add_library(parallax_cuda_headers INTERFACE)
  # The system's, for their warnings are not ours.
  target_include_directories(parallax_cuda_headers SYSTEM INTERFACE ${PARALLAX_CUDA_INCLUDE}
                                                                   ${PARALLAX_NCCL_INCLUDE})
endif()
