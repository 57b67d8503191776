// SPDX-License-Identifier: Apache-2.0
// Parameter servers over MPI. See mpi_servers.h.
#include "mpi_servers.h"

#include <algorithm>
#include <utility>

namespace parallax::peers {

MpiServers::MpiServers(Tensors tensors) : tensors_(std::move(tensors)) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &world_);
  place();
  came_.resize(tensors_.size());
  missing_.resize(tensors_.size());
  for (uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    if (!serves(tensor)) continue;
    came_[tensor].resize(tensors_[tensor].size() * static_cast<size_t>(world_ - 1));
  }
}

void MpiServers::place() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
  int first = rank_;
  MPI_Bcast(&first, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  std::vector<int> first_of(static_cast<size_t>(world_));
  MPI_Allgather(&first, 1, MPI_INT, first_of.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<std::pair<uint64_t, int>> servers;  // bytes so far, rank
  for (int rank = 0; rank < world_; ++rank) {
    if (first_of[static_cast<size_t>(rank)] == rank) servers.emplace_back(0, rank);
  }
  for (const auto& tensor : tensors_) {
    auto& emptiest = *std::min_element(servers.begin(), servers.end());
    emptiest.first += tensor.size_bytes();
    server_.push_back(emptiest.second);
  }
}

void MpiServers::post(What what, uint32_t tensor, int peer, float* values) {
  const auto count = static_cast<int>(tensors_[tensor].size());
  // Gradients and sums of a tensor never mix: whoever gets its gradients gets no sums of it.
  const auto tag = static_cast<int>(tensor);
  MPI_Request request = MPI_REQUEST_NULL;
  const bool sends = what == What::kGradientSent || what == What::kSumSent;
  const int status = sends
                         ? MPI_Isend(values, count, MPI_FLOAT, peer, tag, MPI_COMM_WORLD, &request)
                         : MPI_Irecv(values, count, MPI_FLOAT, peer, tag, MPI_COMM_WORLD, &request);
  if (status != MPI_SUCCESS) fail("MPI refuses a message");
  requests_.push_back(request);
  transfers_.push_back({what, tensor});
}

// Adds up the tensor in the order of ranks, beginning with the server's own, and sends the sum.
void MpiServers::add(uint32_t tensor) {
  const auto& sum = tensors_[tensor];
  const float* from = came_[tensor].data();
  for (int other = 0; other < world_ - 1; ++other, from += sum.size()) {
    for (size_t at = 0; at < sum.size(); ++at) sum[at] += from[at];
  }
  for (int peer = 0; peer < world_; ++peer) {
    if (peer != rank_) post(What::kSumSent, tensor, peer, sum.data());
  }
}

void MpiServers::ended(const Transfer& transfer) {
  const uint32_t tensor = transfer.tensor;
  switch (transfer.what) {
    case What::kGradientSent:  // and so its memory may take the sum
      post(What::kSumCame, tensor, server_[tensor], tensors_[tensor].data());
      break;
    case What::kGradientCame:
      if (--missing_[tensor] == 0) add(tensor);
      break;
    case What::kSumSent:
    case What::kSumCame:
      break;
  }
}

void MpiServers::run() {
  requests_.clear();
  transfers_.clear();
  for (uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    if (!serves(tensor)) {
      post(What::kGradientSent, tensor, server_[tensor], tensors_[tensor].data());
      continue;
    }
    missing_[tensor] = world_ - 1;
    float* to = came_[tensor].data();
    for (int peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      post(What::kGradientCame, tensor, peer, to);
      to += tensors_[tensor].size();
    }
  }
  std::vector<int> indices;
  while (true) {
    indices.resize(requests_.size());
    int done = 0;
    if (MPI_Waitsome(static_cast<int>(requests_.size()), requests_.data(), &done, indices.data(),
                     MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      fail("MPI_Waitsome failed");
    }
    if (done == MPI_UNDEFINED) return;
    for (int at = 0; at < done; ++at) {
      // A copy: what ends may make new ones.
      const Transfer transfer = transfers_[static_cast<size_t>(indices[static_cast<size_t>(at)])];
      ended(transfer);
    }
  }
}

}  // namespace parallax::peers
