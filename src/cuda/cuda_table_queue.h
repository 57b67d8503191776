// SPDX-License-Identifier: Apache-2.0
// CudaTableQueue: TableQueue as a stream of the driver's, which no legacy default stream waits for,
// with the module's kernels. See device/table_queue.h.
#ifndef PARALLAX_CUDA_CUDA_TABLE_QUEUE_H_
#define PARALLAX_CUDA_CUDA_TABLE_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "cuda/cuda_device.h"
#include "cuda/cuda_kernels.h"
#include "cuda/event_pool.h"
#include "cuda/kernels/launcher.h"
#include "device/table_queue.h"

namespace parallax {

class CudaTableQueue final : public TableQueue {
 public:
  // All of them outlive the queue. IO.
  static Status create(const DriverLibrary& driver, const CudaDevice& device, CudaKernels& kernels,
                       const std::function<void()>& wake, std::unique_ptr<TableQueue>* queue);
  ~CudaTableQueue() override;
  CudaTableQueue(const CudaTableQueue&) = delete;
  CudaTableQueue& operator=(const CudaTableQueue&) = delete;

  uint32_t device() const override { return device_.number(); }
  Status allocate(uint64_t bytes, std::byte** memory) override;
  Status copy_in(std::byte* to_device, const std::byte* from_host, uint64_t bytes) override;
  Status copy_out(std::byte* to_host, const std::byte* from_device, uint64_t bytes) override;
  Status gather(const TableArray& array, const TableRows& rows, const TableTarget& to) override;
  Status scatter(const TableArray& array, const TableRows& rows, const std::byte* in) override;
  Status cast(const std::byte* values, uint64_t count, const TableTarget& to) override;
  Status update(const TableUpdate& update) override;
  Status mark(uint64_t* mark) override;
  Status passed(uint64_t mark, bool* passed) override;
  bool drain(int64_t timeout_ns) override;

 private:
  struct Mark {
    uint64_t number = 0;
    CUevent event = nullptr;
  };

  CudaTableQueue(const DriverLibrary& driver, const CudaDevice& device, CudaKernels& kernels,
                 const std::function<void()>& wake)
      : api_(driver.api),
        device_(device),
        launcher_(kernels.launcher()),
        wake_(wake),
        events_(driver.api) {}

  Status prepare();
  // enqueue() answers a code; `what` is the function, null: the launcher says it.
  template <typename Enqueue>
  Status with_context(const char* what, Enqueue enqueue);
  Status take_event(CUevent* event);
  kernels::DeviceIds ids_of(const TableRows& rows, uint64_t table_rows) const;

  const DriverApi& api_;
  const CudaDevice& device_;
  kernels::Launcher& launcher_;
  const std::function<void()>& wake_;
  CUstream stream_ = nullptr;
  CUdeviceptr bad_ = 0;  // where kernels would note a row that is none; the owner gives no such
  std::vector<CUdeviceptr> memory_;
  EventPool events_;
  std::deque<Mark> marks_;  // not known to be passed, ascending
  uint64_t marked_ = 0;
};

}  // namespace parallax

#endif  // PARALLAX_CUDA_CUDA_TABLE_QUEUE_H_
