// SPDX-License-Identifier: Apache-2.0
// Sparse steps by ps-lite in bench/peers: a worker in each rank, and servers in processes beside.
// Row `id` lies with server id % S, where a key tells its table and place. A worker pulls its
// distinct rows by their keys and pushes the sums of their gradients, for each table in a request
// of its own, all at once; a server answers the pushes of a table once it has those of all workers,
// and has updated its rows by them, as MXNet's servers do.
//
//   parallax_peer_pslite FOLDER RANK WORLD      a worker
//   parallax_peer_pslite server WORLD           a server
//   parallax_peer_pslite scheduler              who they meet at
//
// ps-lite's own variables say where that is, and how many there are (DMLC_PS_ROOT_URI and others).
#include <ps/ps.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "rows.h"

namespace parallax::peers {
namespace {

constexpr int kApp = 0, kCustomer = 0;

std::string words_of(const SparseStep& step) {
  std::ostringstream words;
  words << (step.rule == Rule::kSgd ? "sgd" : "adagrad") << "/1/f32/0/";
  for (const auto& table : step.tables) {
    words << (table.first_id == 0 ? "" : ",") << table.rows << 'x' << table.width << 'x'
          << table.ids;
  }
  return words.str();
}

// Where rows of tables lie among a server's keys. The first of each table is no id's: a worker that
// has nothing for a server gives that one, since a server waits for all.
class Places {
 public:
  Places(const SparseStep& step, uint64_t servers) : servers_(servers) {
    uint64_t next = 0;
    for (const auto& table : step.tables) {
      first_.push_back(next);
      next += table.rows / servers + 2;
    }
  }
  uint64_t first(size_t table) const { return first_[table]; }
  uint64_t of(size_t table, uint64_t id) const { return first_[table] + 1 + id / servers_; }

 private:
  uint64_t servers_;
  std::vector<uint64_t> first_;
};

// ---- a server

class Server {
 public:
  explicit Server(uint64_t world) : world_(world), server_(kApp) {
    auto& simple = static_cast<ps::SimpleApp&>(server_);
    simple.set_request_handle([this](const ps::SimpleData& request, ps::SimpleApp* app) {
      open(SparseStep::read(request.body));
      app->Response(request);
    });
    server_.set_request_handle([this](const ps::KVMeta& meta, const ps::KVPairs<float>& pairs,
                                      ps::KVServer<float>* /*server*/) {
      meta.pull ? answer(meta, pairs) : take(meta, pairs);
    });
  }

 private:
  struct Push {
    ps::KVMeta meta;
    ps::KVPairs<float> pairs;
  };

  void open(SparseStep step) {
    const auto servers = static_cast<uint64_t>(ps::NumServers());
    places_ = std::make_unique<Places>(step, servers);
    for (auto& table : step.tables) table.rows += servers;  // room for the row of no id
    step_ = std::move(step);
    tables_ = std::make_unique<TableParts>(step_, static_cast<uint32_t>(servers));
    pushes_.assign(step_.tables.size(), {});
    const auto own = static_cast<size_t>(ps::MyRank());
    first_key_ = ps::Postoffice::Get()->GetServerKeyRanges()[own].begin();
  }

  uint64_t place_of(size_t table, ps::Key key) const {
    return key - first_key_ - places_->first(table);
  }

  void answer(const ps::KVMeta& meta, const ps::KVPairs<float>& asked) {
    const auto table = static_cast<size_t>(meta.cmd);
    const uint64_t width = step_.tables[table].width;
    ps::KVPairs<float> rows;
    rows.keys = asked.keys;
    const size_t count = asked.keys.size() * width;
    rows.vals = ps::SArray<float>(new float[count], count, true);  // which writes no zeros first
    float* row = rows.vals.data();
    for (const ps::Key key : asked.keys) {
      const float* const from = tables_->values(table) + place_of(table, key) * width;
      row = std::copy(from, from + width, row);
    }
    server_.Response(meta, rows);
  }

  void take(const ps::KVMeta& meta, const ps::KVPairs<float>& pairs) {
    const auto table = static_cast<size_t>(meta.cmd);
    auto& pushes = pushes_[table];
    pushes.push_back({meta, pairs});
    if (pushes.size() < world_) return;
    update(table);
    for (const auto& push : pushes) server_.Response(push.meta);
    pushes.clear();
  }

  // By rows that are summed where they were received.
  void update(size_t table) {
    auto& pushes = pushes_[table];
    std::vector<GivenRows> given;
    row_places_.clear();
    for (const auto& push : pushes) {
      for (const ps::Key key : push.pairs.keys) {
        row_places_.push_back(static_cast<int32_t>(place_of(table, key)));
      }
    }
    const int32_t* places = row_places_.data();
    for (auto& push : pushes) {
      given.push_back({places, push.pairs.vals.data(), push.pairs.keys.size()});
      places += push.pairs.keys.size();
    }
    updater_.update_table(step_.rule, step_.tables[table].width, given, tables_->values(table),
                          tables_->state(table));
  }

  const uint64_t world_;
  SparseStep step_;
  ps::Key first_key_ = 0;
  std::unique_ptr<Places> places_;
  std::unique_ptr<TableParts> tables_;
  Updater updater_;
  std::vector<int32_t> row_places_;
  std::vector<std::vector<Push>> pushes_;  // of each table, those of the step so far
  ps::KVServer<float> server_;             // last: it calls the others
};

// ---- a worker

class PsLite final : public Sparse {
 public:
  PsLite(uint32_t rank, uint32_t world) : Sparse(rank, world), worker_(kApp, kCustomer) {}
  void meet() override { ps::Postoffice::Get()->Barrier(kCustomer, ps::kWorkerGroup); }
  void settle() override { meet(); }

 protected:
  void open(const SparseStep& step) override {
    step_ = step;
    places_ = std::make_unique<Places>(step, static_cast<uint64_t>(ps::NumServers()));
    lists_.assign(step.tables.size(), {});
    gradients_.assign(step.values, 0);
    values_.assign(step.values, 0);
    meet();  // nobody asks for the old tables any more
    if (rank_ == 0) worker_.Wait(worker_.Request(0, words_of(step), ps::kServerGroup));
    meet();
  }
  Buffers choose(const std::string& /*variant*/) override { return {gradients_, values_}; }

  Took run(const int64_t* ids, const int64_t* /*next*/) override {
    const int64_t start_ns = now_ns();
    for (size_t table = 0; table < lists_.size(); ++table) {
      list(table, ids + step_.tables[table].first_id);
      List& of = lists_[table];
      of.request = worker_.ZPull(keys_of(of), &of.rows, nullptr, static_cast<int>(table));
    }
    for (size_t table = 0; table < lists_.size(); ++table) {
      worker_.Wait(lists_[table].request);
      expand(table);
    }
    const int64_t looked_up_ns = now_ns();
    compute(step_);
    for (size_t table = 0; table < lists_.size(); ++table) {
      sum(table);
      List& of = lists_[table];
      of.request = worker_.ZPush(keys_of(of), of.rows, {}, static_cast<int>(table));
    }
    for (const auto& of : lists_) worker_.Wait(of.request);
    return {looked_up_ns - start_ns, now_ns() - start_ns};
  }

 private:
  // What is asked of a table, and given.
  struct List {
    std::vector<std::pair<ps::Key, uint32_t>> sorted;  // a key for each id, and which id it is
    std::vector<ps::Key> keys;                         // ascending, each once
    std::vector<uint32_t> row_of;                      // of each id
    std::vector<float> memory;
    ps::SArray<float> rows;  // of the keys, in `memory`
    int request = 0;
  };

  static ps::SArray<ps::Key> keys_of(List& list) { return {list.keys.data(), list.keys.size()}; }

  void list(size_t table, const int64_t* ids) {
    const auto& of = step_.tables[table];
    const std::vector<ps::Range>& ranges = ps::Postoffice::Get()->GetServerKeyRanges();
    List& list = lists_[table];
    list.sorted.clear();
    for (uint32_t at = 0; at < of.ids; ++at) {
      const auto id = static_cast<uint64_t>(ids[at]);
      const auto& range = ranges[id % ranges.size()];
      list.sorted.emplace_back(range.begin() + places_->of(table, id), at);
    }
    std::sort(list.sorted.begin(), list.sorted.end());
    list.keys.clear();
    list.row_of.resize(of.ids);
    size_t server = 0;
    const auto give_none_until = [&](size_t end) {
      for (; server < end; ++server) {
        list.keys.push_back(ranges[server].begin() + places_->first(table));
      }
    };
    for (const auto& [key, at] : list.sorted) {
      if (list.keys.empty() || list.keys.back() != key) {
        const auto to = static_cast<uint64_t>(ids[at]) % ranges.size();
        give_none_until(to);
        server = to + 1;
        list.keys.push_back(key);
      }
      list.row_of[at] = static_cast<uint32_t>(list.keys.size() - 1);
    }
    give_none_until(ranges.size());
    const size_t count = list.keys.size() * of.width;
    if (list.memory.size() < count) list.memory.resize(count);
    list.rows = ps::SArray<float>(list.memory.data(), count);
  }

  void expand(size_t table) {
    const auto& of = step_.tables[table];
    float* value = &values_[of.first_value];
    for (const uint32_t row : lists_[table].row_of) {
      const float* const from = lists_[table].memory.data() + row * of.width;
      value = std::copy(from, from + of.width, value);
    }
  }

  void sum(size_t table) {
    const auto& of = step_.tables[table];
    float* const rows = lists_[table].memory.data();
    std::fill(rows, rows + lists_[table].keys.size() * of.width, 0.0F);
    const float* gradient = &gradients_[of.first_value];
    for (const uint32_t row : lists_[table].row_of) {
      float* const to = rows + row * of.width;
      for (uint64_t at = 0; at < of.width; ++at) to[at] += *gradient++;
    }
  }

  SparseStep step_;
  std::unique_ptr<Places> places_;
  std::vector<List> lists_;
  std::vector<float> gradients_, values_;
  ps::KVWorker<float> worker_;
};

void run_worker(int count, char** all) {
  const auto [folder, rank, world] = started_as(count, all);
  PsLite contender(rank, world);
  serve(contender, rank, folder);
}

}  // namespace
}  // namespace parallax::peers

int main(int count, char** all) {
  using namespace parallax::peers;
  argument(count, all, 2);  // the least that either has, before anything starts
  ps::Start(kCustomer);
  std::unique_ptr<Server> server;
  if (ps::IsServer()) server = std::make_unique<Server>(std::stoull(argument(count, all, 2)));
  if (ps::IsWorker()) run_worker(count, all);
  ps::Finalize(kCustomer, true);
  return 0;
}
