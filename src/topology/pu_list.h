// SPDX-License-Identifier: Apache-2.0
// Lists of PUs and NUMA nodes as the kernel and taskset write them: "0-3,8". Pure; any thread.
#ifndef PARALLAX_TOPOLOGY_PU_LIST_H_
#define PARALLAX_TOPOLOGY_PU_LIST_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parallax {

inline constexpr uint32_t kPuIndexMax = 65535;

// Ascending, each once, whatever the order in `text`. False, with *numbers untouched: not such a
// list, empty, or a number past kPuIndexMax.
[[nodiscard]] bool parse_pu_list(std::string_view text, std::vector<uint32_t>* numbers);

// `numbers` ascending; "" of none.
std::string pu_list_text(std::span<const uint32_t> numbers);

}  // namespace parallax

#endif  // PARALLAX_TOPOLOGY_PU_LIST_H_
