// SPDX-License-Identifier: Apache-2.0
// Sparse steps over MPI in bench/peers; variants are the ways of mpi_ways.h. Which transport it
// takes and whether it yields is said to mpirun.
#include <map>

#include "mpi_rank.h"
#include "mpi_ways.h"

namespace parallax::peers {

namespace {

class MpiSparse final : public Sparse {
 public:
  using Sparse::Sparse;
  void meet() override { MPI_Barrier(MPI_COMM_WORLD); }
  void settle() override { meet(); }

 protected:
  void open(const SparseStep& step) override {
    ways_.clear();
    whole_.reset();
    wire_ = {};
    step_ = step;
    gradients_ = std::vector<float>(step.values);
    values_ = std::vector<float>(step.values);
  }

  Buffers choose(const std::string& variant) override {
    auto& way = ways_[variant];
    if (way == nullptr) way = make(variant);
    way_ = way.get();
    return {gradients_, values_};
  }
  std::string tables_of(const std::string& variant) const override {
    return gathers(variant) ? "whole" : variant;
  }

  Took run(const int64_t* ids, const int64_t* /*next*/) override {
    return way_->run({gradients_, values_}, ids);
  }

 private:
  static bool gathers(const std::string& variant) {
    return variant == "gather" || variant == "gather-merged" || variant == "balanced";
  }

  std::unique_ptr<MpiWay> make(const std::string& variant) {
    if (gathers(variant)) {
      if (whole_ == nullptr) whole_ = std::make_unique<TableParts>(step_, 1);
      if (variant == "balanced") return balanced_way(step_, *whole_, wire_);
      return gather_way(step_, *whole_, variant == "gather-merged", wire_);
    }
    if (variant == "owners") return owners_way(step_, wire_);
    if (variant != "ranges") fail("no way: " + variant);
    return ranges_way(step_, wire_);
  }

  SparseStep step_;
  std::vector<float> gradients_, values_;
  WireBuffers wire_;
  std::unique_ptr<TableParts> whole_;  // of all ways that gather
  std::map<std::string, std::unique_ptr<MpiWay>> ways_;
  MpiWay* way_ = nullptr;
};

}  // namespace
}  // namespace parallax::peers

// FOLDER
int main(int count, char** all) {
  using namespace parallax::peers;
  return serve_rank_of_mpi<MpiSparse>(count, all);
}
