// SPDX-License-Identifier: Apache-2.0
// Gloo in bench/peers, by its own C++ interface over tcp. Variants: `default` and `fused`, as in
// mpi.cc, with the algorithm that Gloo takes of itself; `bcube` and `hd` (halving, doubling).
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>

#include "dense.h"

namespace parallax::peers {
namespace {

class Gloo final : public FloatDense {
 public:
  Gloo(uint32_t rank, uint32_t world, const std::string& folder, const std::string& interface)
      : FloatDense(rank, world) {
    gloo::transport::tcp::attr where;
    where.iface = interface;
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(folder);
    context_ = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank),
                                                           static_cast<int>(world));
    context_->connectFullMesh(store, device);
  }

 protected:
  Tensors tensors(const std::string& variant, const std::vector<uint64_t>& bytes) override {
    variant_ = variant;
    tensors_ = slab_.place(bytes);
    halving_.clear();
    if (variant != "hd") return tensors_;
    for (const auto& tensor : tensors_) {
      halving_.push_back(std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{tensor.data()}, static_cast<int>(tensor.size())));
    }
    return tensors_;
  }

  Took allreduce() override {
    const int64_t start_ns = now_ns();
    const auto sum = [this](float* values, uint64_t count) { reduce(values, count); };
    if (variant_ == "hd") {
      for (const auto& each : halving_) each->run();
    } else if (variant_ == "fused") {
      fusion_.run(tensors_, sum);
    } else {
      for (const auto& tensor : tensors_) sum(tensor.data(), tensor.size());
    }
    const int64_t took_ns = now_ns() - start_ns;
    return {took_ns, took_ns};
  }

 private:
  void reduce(float* values, uint64_t count) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values, count);
    options.setAlgorithm(variant_ == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                             : gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::string variant_;
  Slab slab_;
  Tensors tensors_;
  Fusion fusion_;
  std::vector<std::unique_ptr<gloo::AllreduceHalvingDoubling<float>>> halving_;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER RANK WORLD INTERFACE
int main(int count, char** all) {
  using namespace parallax::peers;
  const auto [folder, rank, world] = started_as(count, all);
  try {
    Gloo gloo(rank, world, folder, argument(count, all, 4));
    serve(gloo, rank, folder);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return 0;
}
