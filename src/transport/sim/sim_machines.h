// SPDX-License-Identifier: Apache-2.0
// SimMachines: what the simulated wires ask of the machines at their ends, and tell them. SimWorld
// implements it. One thread; never blocks.
#ifndef PARALLAX_TRANSPORT_SIM_SIM_MACHINES_H_
#define PARALLAX_TRANSPORT_SIM_SIM_MACHINES_H_

#include <cstdint>

namespace parallax {

inline constexpr int kNoFault = -1;

class SimMachines {
 public:
  virtual int64_t local_now_ns(uint32_t rank) const = 0;     // with the work charged so far
  virtual void charge_ns(uint32_t rank, int64_t ns) = 0;     // CPU time
  virtual void on_deliverable(uint32_t rank) = 0;            // its inbox is not empty
  virtual void on_send(uint32_t rank) = 0;                   // it sent a message
  virtual void on_fault_felt(int fault, uint32_t rank) = 0;  // a fault changed something

 protected:
  ~SimMachines() = default;
};

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_SIM_SIM_MACHINES_H_
