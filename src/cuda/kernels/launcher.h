// SPDX-License-Identifier: Apache-2.0
// Launcher: kernels by name, and the shapes they are launched with, over the driver's functions.
// Nothing here waits: everything is enqueued on the caller's stream, and memory that is given stays
// the caller's until the stream has come past it. One a device; its context is current in every
// call, and calls of one launcher are not made at once.
//
// Every function that reads ids takes `bad`, four bytes on the device that are all ones before: the
// least position of an id that is no row of the table, or still all ones. What such an id names is
// left out.
#ifndef PARALLAX_CUDA_KERNELS_LAUNCHER_H_
#define PARALLAX_CUDA_KERNELS_LAUNCHER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "cuda/driver_api.h"
#include "cuda/kernels/shapes.h"
#include "server/update_rules.h"

namespace parallax::kernels {

// The image of all kernels, which the driver loads; empty where there was no nvcc to compile them.
std::span<const unsigned char> image();

// Ids of a slice, on the device; -1 is padding. Null: row i has id i, where a function allows it.
struct DeviceIds {
  CUdeviceptr ids = 0;
  uint32_t width_bytes = 8;  // 4 or 8
  uint32_t count = 0;
  uint64_t table_rows = 0;     // ids are below
  CUdeviceptr count_here = 0;  // uint32_t on the device that counts instead of `count`; or 0
  CUdeviceptr bad = 0;
};

// Rows on the device, one after the other; dtype is PARALLAX_F32, F16 or BF16.
struct DeviceRows {
  CUdeviceptr rows = 0;
  uint32_t dtype = PARALLAX_F32;
  uint32_t elements = 1;
};

// What ranks gave, gathered: `count` numbers of any dtype of each, rank after rank in the order in
// which they are added.
struct GatheredNumbers {
  CUdeviceptr numbers = 0;
  uint32_t dtype = PARALLAX_F32;
  uint32_t ranks = 1;  // at most kSumRanksMax
  uint64_t count = 0;
};

// What coalescing gives: rows in ascending order of their ids.
struct Coalesced {
  CUdeviceptr unique_ids = 0;    // as wide as the ids; room for `count`
  CUdeviceptr sums = 0;          // float; room for `count` rows
  CUdeviceptr unique_count = 0;  // uint32_t
  CUdeviceptr work = 0;          // coalesce_work_bytes()
};

class Launcher {
 public:
  explicit Launcher(const DriverApi& driver) : driver_(driver) {}
  ~Launcher() { (void)close(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Loads the image into the current context. NO_BINARY_FOR_GPU: there is none, or none for it.
  CUresult open(std::span<const unsigned char> image, uint32_t processors);
  CUresult close();
  // The function of the driver that answered last, for sentences.
  const char* last_call() const { return last_call_; }

  // out[i] = table[ids[i]], in out's dtype; padding: zeros. As many elements on both sides.
  CUresult gather(CUstream stream, const DeviceRows& table, const DeviceIds& ids,
                  const DeviceRows& out);
  // table[ids[i]] = rows[i], of one dtype; ids occur once.
  CUresult scatter(CUstream stream, const DeviceRows& table, const DeviceIds& ids,
                   const DeviceRows& rows);
  // table[ids[i]] += sums[i], in float, rounded once to the table's dtype; ids occur once.
  CUresult scatter_add(CUstream stream, const DeviceRows& table, const DeviceIds& ids,
                       CUdeviceptr sums);
  CUresult cast(CUstream stream, CUdeviceptr from, uint32_t from_dtype, CUdeviceptr to,
                uint32_t to_dtype, uint64_t count);
  // to = the sum, of hosts of ranks, times a factor in the type that it is summed in, of integers
  // without: the bits of an ordered accumulator.
  CUresult sum_in_order(CUstream stream, const GatheredNumbers& gathered, const HostEnds& ends,
                        double factor, CUdeviceptr to);
  // Rows of one id summed in the order in which they occur: +0 plus each, in float.
  CUresult coalesce(CUstream stream, const DeviceIds& ids, const DeviceRows& rows,
                    const Coalesced& to);
  // One step of a rule, PARALLAX_RULE_SGD, MOMENTUM, ADAGRAD, ROWWISE_ADAGRAD or ADAM, on rows of
  // float; ids occur once, and may be null. States that the rule does not keep are 0.
  CUresult update(CUstream stream, uint32_t rule, const RuleNumbers& with, const DeviceIds& ids,
                  uint32_t elements, CUdeviceptr values, CUdeviceptr state0, CUdeviceptr state1,
                  CUdeviceptr gradients);

 private:
  struct Shape {
    uint32_t blocks = 1;
    uint32_t lane_bits = 0;
  };

  Shape shape_of_rows(uint64_t rows, uint32_t elements) const;
  uint32_t blocks_of(uint64_t count) const;
  template <typename... Parameters>
  CUresult launch(CUstream stream, const std::string& kernel, uint32_t blocks,
                  Parameters... parameters);
  CUresult function_of(const std::string& kernel, CUfunction* function);
  CUresult copy(CUstream stream, const char* what, const DeviceRows& table, const DeviceIds& ids,
                const DeviceRows& rows);
  template <typename Key>
  CUresult coalesce_keys(CUstream stream, const DeviceIds& ids, const DeviceRows& rows,
                         const Coalesced& to);
  // Rows that were sorted: their places in the slice, and where those of each id begin.
  struct Segments {
    uint32_t count = 0;  // of rows that were given
    CUdeviceptr order = 0, starts = 0;
    CUdeviceptr long_ones = 0, long_count = 0;  // of many rows
  };
  CUresult sum_segments(CUstream stream, const DeviceRows& rows, const Segments& segments,
                        const Coalesced& to);

  const DriverApi& driver_;
  CUmodule module_ = nullptr;
  uint32_t blocks_max_ = 1;
  std::map<std::string, CUfunction> functions_;
  const char* last_call_ = "";
};

// Work memory of coalescing up to `count` ids of that width; it does not depend on the rows.
size_t coalesce_work_bytes(uint32_t count, uint32_t width_bytes);

// The numbers of a step as the rules of the host compute them.
RuleNumbers rule_numbers(const UpdateArguments& with);

}  // namespace parallax::kernels

#endif  // PARALLAX_CUDA_KERNELS_LAUNCHER_H_
