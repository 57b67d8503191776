// SPDX-License-Identifier: Apache-2.0
// Launches of single kernels. See launcher.h; coalescing is in launcher_coalesce.cc.
#include "cuda/kernels/launcher.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "cuda/kernels/launch.h"

namespace parallax::kernels {

namespace {

// Blocks that a processor has at once, about; more of them take turns within the kernel.
constexpr uint32_t kBlocksOfProcessor = 16;

uint32_t bytes_of(uint32_t dtype) { return bytes_of_dtype(dtype); }

bool is_taken(uint32_t dtype) {
  return dtype == PARALLAX_F32 || dtype == PARALLAX_F16 || dtype == PARALLAX_BF16;
}

// f64 is what floats are given out as, and rows are given in, that are summed in float.
bool is_given_as(uint32_t from, uint32_t to) {
  return is_taken(from) && (is_taken(to) || (from == PARALLAX_F32 && to == PARALLAX_F64));
}

std::string suffix_of(const DeviceIds& ids) { return ids.width_bytes == 4 ? "_i32" : "_i64"; }

const char* name_of_rule(uint32_t rule) {
  switch (rule) {
    case PARALLAX_RULE_SGD:
      return "sgd";
    case PARALLAX_RULE_MOMENTUM:
      return "momentum";
    case PARALLAX_RULE_ADAGRAD:
      return "adagrad";
    case PARALLAX_RULE_ROWWISE_ADAGRAD:
      return "rowwise_adagrad";
    case PARALLAX_RULE_ADAM:
      return "adam";
    default:
      return nullptr;
  }
}

}  // namespace

RuleNumbers rule_numbers(const UpdateArguments& with) {
  const Decay<float> decay(with);
  RuleNumbers numbers;
  numbers.rate = static_cast<float>(with.learning_rate);
  numbers.scale = static_cast<float>(decay.sign * with.scale);
  numbers.coupled = decay.coupled;
  numbers.kept = decay.kept;
  numbers.epsilon = static_cast<float>(with.epsilon);
  numbers.momentum = static_cast<float>(with.momentum);
  numbers.nesterov = with.nesterov ? 1 : 0;
  numbers.beta1 = static_cast<float>(with.beta1);
  numbers.beta2 = static_cast<float>(with.beta2);
  numbers.rest1 = static_cast<float>(1 - with.beta1);
  numbers.rest2 = static_cast<float>(1 - with.beta2);
  const double correction1 = 1 - power(with.beta1, with.updates);
  const double root2 = std::sqrt(1 - power(with.beta2, with.updates));
  numbers.root2 = static_cast<float>(root2);
  numbers.size = static_cast<float>(
      (with.sparse ? with.learning_rate * root2 : with.learning_rate) / correction1);
  numbers.sparse = with.sparse ? 1 : 0;
  return numbers;
}

CUresult Launcher::open(std::span<const unsigned char> image, uint32_t processors) {
  blocks_max_ = std::max(1u, processors) * kBlocksOfProcessor;
  last_call_ = "cuModuleLoadData";
  if (image.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  return driver_.cuModuleLoadData(&module_, image.data());
}

CUresult Launcher::close() {
  if (module_ == nullptr) return CUDA_SUCCESS;
  last_call_ = "cuModuleUnload";
  functions_.clear();
  return driver_.cuModuleUnload(std::exchange(module_, nullptr));
}

CUresult Launcher::function_of(const std::string& kernel, CUfunction* function) {
  const auto found = functions_.find(kernel);
  if (found != functions_.end()) {
    *function = found->second;
    return CUDA_SUCCESS;
  }
  last_call_ = "cuModuleGetFunction";
  const CUresult code = driver_.cuModuleGetFunction(function, module_, kernel.c_str());
  if (code == CUDA_SUCCESS) functions_[kernel] = *function;
  return code;
}

uint32_t Launcher::blocks_of(uint64_t count) const {
  const uint64_t wanted = (count + kBlockThreads - 1) / kBlockThreads;
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, blocks_max_));
}

// As many neighbouring threads for a row as it has elements, up to a block; the least power of two.
Launcher::Shape Launcher::shape_of_rows(uint64_t rows, uint32_t elements) const {
  const uint32_t lanes = std::min(std::bit_ceil(std::max(elements, 1u)), kBlockThreads);
  Shape shape;
  shape.lane_bits = static_cast<uint32_t>(std::countr_zero(lanes));
  shape.blocks = blocks_of(rows * lanes);
  return shape;
}

CUresult Launcher::copy(CUstream stream, const char* what, const DeviceRows& table,
                        const DeviceIds& ids, const DeviceRows& rows) {
  // By the widest unit that divides a row and both addresses.
  const uint64_t row_bytes = uint64_t{table.elements} * bytes_of(table.dtype);
  uint32_t unit = 16;
  while (unit > 2 && (row_bytes | table.rows | rows.rows) % unit != 0) unit = unit == 16 ? 4 : 2;
  const uint32_t units = static_cast<uint32_t>(row_bytes / unit);
  const Shape shape = shape_of_rows(ids.count, units);
  return launch(stream,
                "parallax_" + std::string(what) + "_" + std::to_string(unit) + suffix_of(ids),
                shape.blocks, table.rows, ids.table_rows, ids.ids, rows.rows, ids.count, units,
                shape.lane_bits, ids.bad);
}

CUresult Launcher::gather(CUstream stream, const DeviceRows& table, const DeviceIds& ids,
                          const DeviceRows& out) {
  if (!is_given_as(table.dtype, out.dtype)) return CUDA_ERROR_INVALID_VALUE;
  if (ids.count == 0 || table.elements == 0) return CUDA_SUCCESS;
  if (table.dtype == out.dtype) return copy(stream, "gather", table, ids, out);
  const Shape shape = shape_of_rows(ids.count, table.elements);
  return launch(stream,
                "parallax_gather_" + std::string(dtype_name(table.dtype)) + "_" +
                    dtype_name(out.dtype) + suffix_of(ids),
                shape.blocks, table.rows, ids.table_rows, ids.ids, out.rows, ids.count,
                table.elements, shape.lane_bits, ids.bad);
}

CUresult Launcher::scatter(CUstream stream, const DeviceRows& table, const DeviceIds& ids,
                           const DeviceRows& rows) {
  if (!is_floating(table.dtype) || rows.dtype != table.dtype) return CUDA_ERROR_INVALID_VALUE;
  if (ids.count == 0 || table.elements == 0) return CUDA_SUCCESS;
  return copy(stream, "scatter", table, ids, rows);
}

CUresult Launcher::scatter_add(CUstream stream, const DeviceRows& table, const DeviceIds& ids,
                               CUdeviceptr sums) {
  if (!is_taken(table.dtype)) return CUDA_ERROR_INVALID_VALUE;
  if (ids.count == 0 || table.elements == 0) return CUDA_SUCCESS;
  const Shape shape = shape_of_rows(ids.count, table.elements);
  return launch(stream,
                "parallax_scatter_add_" + std::string(dtype_name(table.dtype)) + suffix_of(ids),
                shape.blocks, table.rows, ids.table_rows, ids.ids, sums, ids.count, ids.count_here,
                table.elements, shape.lane_bits, ids.bad);
}

CUresult Launcher::cast(CUstream stream, CUdeviceptr from, uint32_t from_dtype, CUdeviceptr to,
                        uint32_t to_dtype, uint64_t count) {
  if (!is_given_as(from_dtype, to_dtype)) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0) return CUDA_SUCCESS;
  if (from_dtype == to_dtype) {
    last_call_ = "cuMemcpyDtoDAsync_v2";
    return driver_.cuMemcpyDtoDAsync_v2(to, from, count * bytes_of(from_dtype), stream);
  }
  return launch(stream,
                "parallax_cast_" + std::string(dtype_name(from_dtype)) + "_" + dtype_name(to_dtype),
                blocks_of(count), from, to, count);
}

CUresult Launcher::sum_in_order(CUstream stream, const GatheredNumbers& gathered,
                                const HostEnds& ends, double factor, CUdeviceptr to) {
  if (gathered.ranks > kSumRanksMax) return CUDA_ERROR_INVALID_VALUE;
  if (gathered.count == 0) return CUDA_SUCCESS;
  return launch(stream, "parallax_sum_in_order_" + std::string(dtype_name(gathered.dtype)),
                blocks_of(gathered.count), gathered.numbers, ends, gathered.ranks, factor, to,
                gathered.count);
}

CUresult Launcher::update(CUstream stream, uint32_t rule, const RuleNumbers& with,
                          const DeviceIds& ids, uint32_t elements, CUdeviceptr values,
                          CUdeviceptr state0, CUdeviceptr state1, CUdeviceptr gradients) {
  const char* const name = name_of_rule(rule);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ids.count == 0 || elements == 0) return CUDA_SUCCESS;
  Shape shape = shape_of_rows(ids.count, elements);
  if (rule == PARALLAX_RULE_ROWWISE_ADAGRAD) shape.blocks = std::min(ids.count, blocks_max_);
  const std::string kernel = "parallax_update_" + std::string(name) + suffix_of(ids);
  const auto with_states = [&](auto... states) {
    return launch(stream, kernel, shape.blocks, with, ids.table_rows, ids.ids, ids.count,
                  ids.count_here, elements, shape.lane_bits, ids.bad, values, states..., gradients);
  };
  if (rule == PARALLAX_RULE_SGD) return with_states();
  return rule == PARALLAX_RULE_ADAM ? with_states(state0, state1) : with_states(state0);
}

}  // namespace parallax::kernels
