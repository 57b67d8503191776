// SPDX-License-Identifier: Apache-2.0
// parallax bench wire: what two ranks get out of the wire between them, raw and by the library.
#ifndef PARALLAX_TOOL_BENCH_WIRE_H_
#define PARALLAX_TOOL_BENCH_WIRE_H_

namespace parallax::tool::bench {

int wire_main(int argc, char** argv);

}  // namespace parallax::tool::bench

#endif  // PARALLAX_TOOL_BENCH_WIRE_H_
