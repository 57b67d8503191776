// SPDX-License-Identifier: Apache-2.0
// Opens a job of one rank through parallax.hpp, waits for a barrier, closes it.
#include <cstdio>
#include <parallax/parallax.hpp>

int main() {
  try {
    parallax::Job job(parallax::sized<parallax_options_t>());
    job.commit();
    job.barrier().wait();
    std::printf("libparallax %s: world %u\n", parallax_version_string(), job.query().world);
    job.close();
    return 0;
  } catch (const parallax::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
