// SPDX-License-Identifier: Apache-2.0
// UCC in bench/peers, in place. Variants: `default`, a collective for each tensor, all posted
// before the first is waited for; `fused`, as in mpi.cc; `yield`, as `default`, but the processor
// is given up between polls.
#include <sched.h>
#include <ucc/api/ucc.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "dense.h"

namespace parallax::peers {
namespace {

void expect(ucc_status_t status, const char* call) {
  if (status != UCC_OK) fail(std::string(call) + ": " + ucc_status_string(status));
}

// Ranks meet by files: every gathering has a number, every rank of it a file.
class Meeting {
 public:
  Meeting(std::string folder, uint32_t rank, uint32_t world)
      : folder_(std::move(folder)), rank_(rank), world_(world) {}

  ucc_oob_coll_t callbacks() {
    ucc_oob_coll_t oob = {};
    oob.allgather = [](void* send, void* all, size_t bytes, void* self, void** /*request*/) {
      static_cast<Meeting*>(self)->gather(static_cast<char*>(send), static_cast<char*>(all), bytes);
      return UCC_OK;
    };
    oob.req_test = [](void*) { return UCC_OK; };
    oob.req_free = [](void*) { return UCC_OK; };
    oob.coll_info = this;
    oob.n_oob_eps = world_;
    oob.oob_ep = rank_;
    return oob;
  }

 private:
  void gather(const char* send, char* all, size_t bytes) {
    const std::string round = folder_ + "/ucc." + std::to_string(round_++) + ".";
    const std::string own = round + std::to_string(rank_);
    std::ofstream(own + ".new", std::ios::binary).write(send, static_cast<std::streamsize>(bytes));
    if (rename((own + ".new").c_str(), own.c_str()) != 0) fail("cannot rename " + own);
    for (uint32_t rank = 0; rank < world_; ++rank) {
      const std::string theirs = round + std::to_string(rank);
      while (access(theirs.c_str(), F_OK) != 0) usleep(500);
      std::ifstream(theirs, std::ios::binary)
          .read(all + rank * bytes, static_cast<std::streamsize>(bytes));
    }
  }

  std::string folder_;
  uint32_t rank_, world_, round_ = 0;
};

class Ucc final : public FloatDense {
 public:
  Ucc(uint32_t rank, uint32_t world, const std::string& folder)
      : FloatDense(rank, world), meeting_(folder, rank, world) {
    ucc_lib_config_h lib_config = nullptr;
    expect(ucc_lib_config_read(nullptr, nullptr, &lib_config), "ucc_lib_config_read");
    ucc_lib_params_t lib_params = {};
    lib_params.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE;
    lib_params.thread_mode = UCC_THREAD_SINGLE;
    expect(ucc_init(&lib_params, lib_config, &lib_), "ucc_init");
    ucc_lib_config_release(lib_config);
    ucc_context_config_h context_config = nullptr;
    expect(ucc_context_config_read(lib_, nullptr, &context_config), "ucc_context_config_read");
    ucc_context_params_t context_params = {};
    context_params.mask = UCC_CONTEXT_PARAM_FIELD_OOB;
    context_params.oob = meeting_.callbacks();
    expect(ucc_context_create(lib_, &context_params, context_config, &context_),
           "ucc_context_create");
    ucc_context_config_release(context_config);
    ucc_team_params_t team_params = {};
    team_params.mask =
        UCC_TEAM_PARAM_FIELD_OOB | UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE;
    team_params.oob = meeting_.callbacks();
    team_params.ep = rank;
    team_params.ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG;
    expect(ucc_team_create_post(&context_, 1, &team_params, &team_), "ucc_team_create_post");
    ucc_status_t status = UCC_INPROGRESS;
    while (status == UCC_INPROGRESS) {
      ucc_context_progress(context_);
      status = ucc_team_create_test(team_);
    }
    expect(status, "ucc_team_create_test");
  }

 protected:
  Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) override {
    variant_ = variant;
    tensors_ = slab_.place(bytes);
    return tensors_;
  }

  Took allreduce() override {
    const int64_t start_ns = now_ns();
    if (variant_ == "fused") {
      fusion_.run(tensors_, [this](float* values, uint64_t count) {
        post({values, count});
        finish();
      });
    } else {
      for (const auto& tensor : tensors_) post(tensor);
      finish();
    }
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

 private:
  void post(std::span<float> values) {
    ucc_coll_args_t what = {};
    what.mask = UCC_COLL_ARGS_FIELD_FLAGS;
    what.flags = UCC_COLL_ARGS_FLAG_IN_PLACE;
    what.coll_type = UCC_COLL_TYPE_ALLREDUCE;
    what.op = UCC_OP_SUM;
    what.dst.info.buffer = values.data();
    what.dst.info.count = values.size();
    what.dst.info.datatype = UCC_DT_FLOAT32;
    what.dst.info.mem_type = UCC_MEMORY_TYPE_HOST;
    what.src.info = what.dst.info;
    requests_.emplace_back();
    expect(ucc_collective_init(&what, &requests_.back(), team_), "ucc_collective_init");
    expect(ucc_collective_post(requests_.back()), "ucc_collective_post");
  }

  void finish() {
    for (const auto request : requests_) {
      ucc_status_t status = ucc_collective_test(request);
      while (status == UCC_INPROGRESS) {
        ucc_context_progress(context_);
        if (variant_ == "yield") sched_yield();
        status = ucc_collective_test(request);
      }
      expect(status, "allreduce");
      expect(ucc_collective_finalize(request), "ucc_collective_finalize");
    }
    requests_.clear();
  }

  Meeting meeting_;
  ucc_lib_h lib_ = nullptr;
  ucc_context_h context_ = nullptr;
  ucc_team_h team_ = nullptr;
  std::string variant_;
  Slab slab_;
  Tensors tensors_;
  Fusion fusion_;
  std::vector<ucc_coll_req_h> requests_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  Ucc ucc(rank, world, folder);
  serve(ucc, rank, folder);
  // What UCC keeps ends with the process.
  return 0;
}
