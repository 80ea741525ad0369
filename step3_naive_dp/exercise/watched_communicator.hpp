// For the grader: writes down what a rank asks for, and lets no rank wait for another for ever.
//
// Before each collective all ranks agree on what it is. Where they differ, each of them gets a
// CheckError that says what every rank is about to do, and so does every call after that. send,
// recv and split are refused: data parallelism needs none of them.
//
// Collective: as Communicator; the constructor and finish() too.
// Lifetime:   `inner` outlives this.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"
#include "common/core/check.hpp"
#include "common/train/gather_text.hpp"

namespace ladder::step3 {

// What a rank asked for.
struct Watched {
  std::vector<std::string> calls;  // "all_reduce of 12 elements"
  std::size_t most_in_flight = 0;  // operations that were started and not waited for, at once
  std::size_t num_never_waited_for = 0;
};

class WatchedCommunicator final : public Communicator {
 public:
  explicit WatchedCommunicator(Communicator& inner)
      : inner_(inner), agreements_(inner.split(0, inner.rank())) {}

  const Watched& watched() const { return watched_; }

  // That no rank has more to do. Waits for what nobody has waited for.
  void finish() {
    watched_.num_never_waited_for = in_flight_->size();
    for (const std::shared_ptr<Work>& work : *in_flight_) work->wait();
    in_flight_->clear();
    agree("nothing more");
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr all_reduce(at::Tensor inout) override {
    record(on("all_reduce", inout));
    return watch(inner_.all_reduce(std::move(inout)));
  }
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    record(on("reduce_scatter", full));
    return watch(inner_.reduce_scatter(full, std::move(shard)));
  }
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    record(on("all_gather", full));
    return watch(inner_.all_gather(shard, std::move(full)));
  }
  WorkPtr broadcast(at::Tensor inout, int root) override {
    record(concat(on("broadcast", inout), " from rank ", root));
    return watch(inner_.broadcast(std::move(inout), root));
  }
  void barrier() override {
    record("barrier");
    inner_.barrier();
  }
  WorkPtr send(const at::Tensor& /*tensor*/, int /*peer*/, int /*tag*/) override {
    throw CheckError("send is not needed here");
  }
  WorkPtr recv(at::Tensor /*tensor*/, int /*peer*/, int /*tag*/) override {
    throw CheckError("recv is not needed here");
  }
  std::unique_ptr<Communicator> split(int /*color*/, int /*key*/) override {
    throw CheckError("split is not needed here");
  }
  Traffic traffic() const override { return inner_.traffic(); }

 private:
  using Works = std::vector<std::shared_ptr<Work>>;

  class WatchedWork final : public Work {
   public:
    WatchedWork(std::shared_ptr<Work> inner, std::shared_ptr<Works> in_flight)
        : inner_(std::move(inner)), in_flight_(std::move(in_flight)) {}
    bool test() override { return inner_->test(); }
    void wait() override {
      std::erase(*in_flight_, inner_);
      inner_->wait();
    }

   private:
    std::shared_ptr<Work> inner_;
    std::shared_ptr<Works> in_flight_;
  };

  static std::string on(const char* op, const at::Tensor& tensor) {
    return concat(op, " of ", tensor.numel(), tensor.numel() == 1 ? " element" : " elements");
  }

  void record(const std::string& call) {
    agree(call);
    watched_.calls.push_back(call);
  }

  void agree(const std::string& call) {
    check(disagreement_.empty(), disagreement_);
    const std::vector<std::string> calls = all_gather_text(call, *agreements_);
    if (std::count(calls.begin(), calls.end(), call) == size()) return;
    disagreement_ = "the ranks do not do the same, and would wait for each other for ever:";
    for (int r = 0; r < size(); ++r) {
      disagreement_ += concat(" rank ", r, ": ", calls[static_cast<std::size_t>(r)], ";");
    }
    throw CheckError(disagreement_);
  }

  WorkPtr watch(std::shared_ptr<Work> work) {
    in_flight_->push_back(work);
    watched_.most_in_flight = std::max(watched_.most_in_flight, in_flight_->size());
    return std::make_unique<WatchedWork>(std::move(work), in_flight_);
  }

  Communicator& inner_;
  std::unique_ptr<Communicator> agreements_;  // its traffic is not the answer's
  std::string disagreement_;
  Watched watched_;
  std::shared_ptr<Works> in_flight_ = std::make_shared<Works>();  // the operations themselves
};

}  // namespace ladder::step3
