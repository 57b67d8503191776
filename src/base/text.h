// SPDX-License-Identifier: Apache-2.0
// Text of others, made fit for a terminal. What a peer, a file or the environment said ends up in
// sentences and log lines, and a terminal obeys control bytes in them. Pure; any thread.
#ifndef PARALLAX_BASE_TEXT_H_
#define PARALLAX_BASE_TEXT_H_

#include <string>
#include <string_view>

namespace parallax {

// The text with line breaks and tabs as blanks, and every other control character (below 0x20,
// 0x7f, U+0080..U+009F) and every byte that is no UTF-8 as \x1b. The rest of UTF-8 stays. What
// comes out goes in unchanged.
std::string printable(std::string_view text);

}  // namespace parallax

#endif  // PARALLAX_BASE_TEXT_H_
