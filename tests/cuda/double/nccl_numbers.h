// SPDX-License-Identifier: Apache-2.0
// What the double of NCCL computes: numbers of several ranks combined in the order of ranks. f16
// and bf16 are combined in float and rounded once; integers wrap.
#ifndef PARALLAX_TESTS_CUDA_DOUBLE_NCCL_NUMBERS_H_
#define PARALLAX_TESTS_CUDA_DOUBLE_NCCL_NUMBERS_H_

#include <nccl.h>

#include <cstddef>
#include <span>

namespace nccl_double {

// 0: there is no such type.
size_t bytes_of(ncclDataType_t type);
// False: these two do not go together, or there is no such type or operation.
bool may_combine(ncclDataType_t type, ncclRedOp_t op);
// to[i] = sources[0][i] op sources[1][i] op ...; `to` may be one of the sources.
void combine(ncclDataType_t type, ncclRedOp_t op, std::span<const std::byte* const> sources,
             std::byte* to, size_t count);

}  // namespace nccl_double

#endif  // PARALLAX_TESTS_CUDA_DOUBLE_NCCL_NUMBERS_H_
