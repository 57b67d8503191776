// SPDX-License-Identifier: Apache-2.0
// parallax.hpp in every dialect from C++17 on, with every warning an error: a training step of one
// rank, with each of its templates.
#include "parallax/parallax.hpp"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

struct Halve {
  int operator()(const parallax_rule_block_t &block) const {
    auto *const values = static_cast<float *>(block.values);
    for (uint64_t i = 0; i < block.row_count * block.row_elements; ++i) values[i] /= 2;
    return 0;
  }
};

bool trains() {
  parallax::Job job(parallax::sized<parallax_options_t>());
  Halve rule;
  auto variable = parallax::sized<parallax_variable_t>();
  variable.name = "table";
  variable.rows = 4;
  variable.row_elements = 1;
  variable.init_low = 8;
  parallax::set_rule(variable, rule);
  const uint32_t id = job.register_variable(variable);
  job.commit();
  parallax::Buffer buffer =
      job.buffer(4 * sizeof(float), parallax::sized<parallax_buffer_options_t>());
  auto slice = parallax::sized<parallax_slice_t>();
  slice.variable = id;
  slice.values = buffer.as<float>();
  const uint64_t step = job.step_begin();
  job.push(step, {slice}).wait();
  parallax::Request end = job.step_end(step, parallax::sized<parallax_step_end_options_t>());
  end.on_stream(0, nullptr);
  if (!end.test()) return false;  // no stream can wait for it: the call did
  end.wait();
  parallax::Request moved = std::move(end);
  job.pull(0, {slice}).wait();
  return moved.step_info().committed == 1 && buffer.as<float>()[3] == 4 &&
         !job.report(PARALLAX_REPORT_PLAN).empty();
}

// A request whose scope ends before the others of its set are called borrows nothing behind it.
bool ends_what_is_pending() {
  setenv("PARALLAX_FUSE_TABLES", "all", 1);
  parallax::Job job(parallax::sized<parallax_options_t>());
  const char *const names[] = {"t0", "t1", "t2", "t3"};
  auto slice = parallax::sized<parallax_slice_t>();
  for (const char *name : names) {
    auto table = parallax::sized<parallax_variable_t>();
    table.name = name;
    table.rows = 9;
    table.row_elements = 1;
    table.rows_max = 4;
    slice.variable = job.register_variable(table);
  }
  job.commit();
  const int64_t id = 3;
  float gradient = 1;
  slice.form = PARALLAX_FORM_ROWS;
  slice.ids = &id;
  slice.row_count = 1;
  slice.values = &gradient;
  const uint64_t step = job.step_begin();
  job.reduce(step, {slice});
  try {
    job.step_end(step, parallax::sized<parallax_step_end_options_t>()).wait();
  } catch (const parallax::Error &error) {
    return error.status() == PARALLAX_CANCELED;
  }
  return false;
}

bool tells_of_failures() {
  auto options = parallax::sized<parallax_options_t>();
  options.rank = 3;
  try {
    const parallax::Job job(options);
  } catch (const parallax::Error &error) {
    return error.status() == PARALLAX_INVALID && error.info().field[0] != '\0';
  }
  return false;
}

}  // namespace

int main() {
  try {
    return trains() && tells_of_failures() && ends_what_is_pending() ? 0 : 1;
  } catch (const parallax::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
