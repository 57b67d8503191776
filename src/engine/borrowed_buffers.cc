// SPDX-License-Identifier: Apache-2.0
// How far the buffers of each kind of request go. See borrowed_buffers.h.
#include "engine/borrowed_buffers.h"

#include <algorithm>

#include "base/number.h"

namespace parallax {

namespace {

bool slice_borrows(const PullSlice& slice, const Variable& variable, const ByteRange& bytes) {
  const bool by_id = variable.ids_declared() && !slice.every_row;
  const uint64_t rows = by_id ? slice.count : variable.rows;
  const uint64_t values = rows * variable.row_elements * bytes_of_dtype(slice.dtype);
  if (ByteRange::at(slice.values, values).overlaps(bytes)) return true;
  if (slice.into != nullptr && ByteRange::at(slice.into, values).overlaps(bytes)) return true;
  if (!by_id) return false;
  if (slice.ids.narrow != nullptr) {
    return ByteRange::at(slice.ids.narrow, rows * sizeof(int32_t)).overlaps(bytes);
  }
  return slice.ids.wide != nullptr &&
         ByteRange::at(slice.ids.wide, rows * sizeof(int64_t)).overlaps(bytes);
}

bool rows_borrow(const RowsCall& call, const Variable& variable, const ByteRange& bytes) {
  for (uint32_t i = 0; i < call.parts.size(); ++i) {
    if (call.parts[i] == nullptr) continue;
    const uint64_t width = i == 0 ? variable.row_elements : variable.state_width(i - 1);
    const uint64_t part_bytes = call.row_count * width * bytes_of_sum(variable.sum_type());
    if (ByteRange::at(call.parts[i], part_bytes).overlaps(bytes)) return true;
  }
  return call.updates != nullptr &&
         ByteRange::at(call.updates, sizeof *call.updates).overlaps(bytes);
}

}  // namespace

bool borrows(const Variable& variable, const ByteRange& bytes) {
  if (!variable.fused.empty()) {
    return std::any_of(variable.fused.begin(), variable.fused.end(),
                       [&](const FusedMember& each) { return borrows(*each.variable, bytes); });
  }
  const uint64_t length = variable.elements() * bytes_of_sum(variable.sum_type());
  return variable.initial != nullptr && ByteRange::at(variable.initial, length).overlaps(bytes);
}

bool borrows(const Request& request, const Registry& registry, const ByteRange& bytes) {
  const auto variables = registry.numbered();
  // Beside these, its slices are copies of theirs.
  if (!request.borrowed.empty()) {
    const bool on_device = std::any_of(request.borrowed.begin(), request.borrowed.end(),
                                       [&](const ByteRange& each) { return each.overlaps(bytes); });
    if (on_device) return true;
  }
  switch (request.kind) {
    case RequestKind::kPull:
    case RequestKind::kPush:
    case RequestKind::kReduce:
    case RequestKind::kEvaluate:
      return std::any_of(request.slices.begin(), request.slices.end(), [&](const PullSlice& slice) {
        return slice_borrows(slice, *variables[slice.variable], bytes);
      });
    case RequestKind::kRows:
      return rows_borrow(request.rows_call, *variables[request.rows_call.variable], bytes);
    case RequestKind::kBroadcast:
      return ByteRange::at(request.buffer.data(), request.buffer.size()).overlaps(bytes);
    case RequestKind::kCollective:
      return request.send.overlaps(bytes) || request.recv.overlaps(bytes);
    case RequestKind::kCommit:
      return std::any_of(variables.begin(), variables.end(),
                         [&](const Variable* each) { return borrows(*each, bytes); });
    case RequestKind::kStepEnd:
    case RequestKind::kBarrier:
    case RequestKind::kSplit:
    case RequestKind::kClose:
      return false;
  }
  return false;
}

std::string call_name(const Request& request) {
  const auto of_step = [&](const std::string& call) {
    return "a pending " + call + " of step " + std::to_string(request.step);
  };
  switch (request.kind) {
    case RequestKind::kPull:
      return of_step("pull");
    case RequestKind::kPush:
      return of_step("push");
    case RequestKind::kReduce:
      return of_step("reduce");
    case RequestKind::kEvaluate:
      return "a pending evaluation";
    case RequestKind::kRows:
      return request.rows_call.write ? "a pending write" : "a pending read";
    case RequestKind::kBroadcast:
      return "a pending broadcast";
    case RequestKind::kCollective:
      return "a pending collective";
    default:
      return "a pending request";
  }
}

}  // namespace parallax
