// SPDX-License-Identifier: Apache-2.0
// The numbers that ranks must agree on to talk over UCX, and how every send of ours is described to
// it. Compile-time only.
#ifndef PARALLAX_TRANSPORT_UCX_UCX_WIRE_H_
#define PARALLAX_TRANSPORT_UCX_UCX_WIRE_H_

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace parallax {

inline constexpr unsigned kUcxDataId = 1;
inline constexpr unsigned kUcxCreditId = 2;
inline constexpr unsigned kUcxGoodbyeId = 3;
inline constexpr unsigned kUcxRailId = 4;  // says nothing, over each rail but the first

// A quarter: the sender has its next credits before it runs out, at one tiny message for four.
inline constexpr uint32_t kUcxCreditBatch = kSendsInFlightMax / 4;

// One message is one segment of UCX's tcp (64 KB with its headers): above that it is cut, and put
// together again in memory that UCX allocates. Measured with UCX 1.13.1 on lo between two processes
// of an otherwise idle 2-core machine, 3 or 4 GB one way, messages summed as float inside the
// callback, both sides blocking on wait_fd() when idle; GB/s, CPU s/GB of sender and of receiver:
//   4 KB 1.35  .73 .67      32 KB 5.6  .15 .16      120 KB 6.2  .15 .15
//   8 KB 2.3   .42 .39      60 KB 6.9  .12 .13      240 KB 6.3  .16 .16
//  16 KB 3.7   .25 .25      64 KB 4.9  .18 .19
// With UCX_TCP_RX_SEG_SIZE=256K 240 KB reach 8.2 (.11 .12), 60 KB stay at 6.9; a receive buffer of
// that size per peer, and a setting that all ranks must share, are not worth it.
// A gather list of 8 costs nothing (6.8).
inline constexpr size_t kUcxMessageBytesDefault = 60 * 1024;

// Eager, from host memory: said outright, because UCX's own detection hooks the allocator, which
// the loader switches off.
inline ucp_request_param_t eager_param(ucp_send_nbx_callback_t done, void* user_data) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = done;
  param.datatype = ucp_dt_make_contig(1);
  param.user_data = user_data;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return param;
}

}  // namespace parallax

#endif  // PARALLAX_TRANSPORT_UCX_UCX_WIRE_H_
