// SPDX-License-Identifier: Apache-2.0
// BorrowedBuffers: which memory of the caller a pending request borrows, read off the request
// itself: whoever wants to do away with memory asks, and no call of a step keeps a list. Pure.
#ifndef PARALLAX_ENGINE_BORROWED_BUFFERS_H_
#define PARALLAX_ENGINE_BORROWED_BUFFERS_H_

#include <string>

#include "base/byte_range.h"
#include "engine/request.h"
#include "variable/registry.h"

namespace parallax {

// Whether the request, of a group with these variables, borrows some of the bytes: slices with
// their row ids, rows with their states, initial values, buffers of collectives. Costs a look at
// each slice.
bool borrows(const Request& request, const Registry& registry, const ByteRange& bytes);

// Whether its initial values, not taken yet, are some of the bytes.
bool borrows(const Variable& variable, const ByteRange& bytes);

// "a pending reduce of step 3".
std::string call_name(const Request& request);

}  // namespace parallax

#endif  // PARALLAX_ENGINE_BORROWED_BUFFERS_H_
