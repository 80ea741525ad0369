// For the grader: writes down what a rank asks for, and lets no rank wait for another for ever.
//
// Before each collective all ranks agree on what it is. Where they differ, each of them gets a
// CheckError that says what every rank is about to do, and so does every call after that. send,
// recv and split are refused: data parallelism needs none of them.
//
// Collective: as Communicator; the constructor and finish() too.
// Lifetime:   `inner` outlives this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder::step3 {

class WatchedCommunicator final : public Communicator {
 public:
  explicit WatchedCommunicator(Communicator& inner);

  // That no rank has more to do. Waits for what nobody has waited for.
  void finish();

  // So far: "all_reduce of 12 elements", …; how many were in flight at once; how many finish()
  // found that were never waited for.
  const std::vector<std::string>& calls() const { return calls_; }
  std::size_t most_in_flight() const { return in_flight_->most; }
  std::size_t num_never_waited_for() const { return num_never_waited_for_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr all_reduce(at::Tensor inout) override;
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override;
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override;
  WorkPtr broadcast(at::Tensor inout, int root) override;
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override;
  WorkPtr recv(at::Tensor tensor, int peer, int tag) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override { return inner_.traffic(); }

 private:
  struct InFlight {
    std::vector<std::shared_ptr<Work>> works;
    std::size_t most = 0;
  };
  class WatchedWork;

  void agree(const std::string& call);
  WorkPtr watched(WorkPtr work);

  Communicator& inner_;
  std::unique_ptr<Communicator> agreements_;  // its traffic is not the answer's
  std::string disagreement_;
  std::vector<std::string> calls_;
  std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
  std::size_t num_never_waited_for_ = 0;
};

}  // namespace ladder::step3
