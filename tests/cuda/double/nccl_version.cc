// SPDX-License-Identifier: Apache-2.0
// Which NCCL the double is: NCCL_DOUBLE_VERSION_CODE is the version whose symbols the library
// exports.
#include <cstdlib>

#include "cuda/double/nccl_communicator.h"

extern "C" PARALLAX_DOUBLE_API ncclResult_t ncclGetVersion(int* version) {
  if (ncclResult_t code = nccl_double::enter("ncclGetVersion")) return code;
  if (version == nullptr) return ncclInvalidArgument;
  const char* told = std::getenv("NCCL_DOUBLE_VERSION");
  *version = told == nullptr ? NCCL_DOUBLE_VERSION_CODE : std::atoi(told);
  return ncclSuccess;
}
