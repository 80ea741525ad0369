// Ranks that call different collectives, or wait for a call that never comes, are told so: who is
// where, who waits for whom, and the newest calls of all ranks side by side (call_board.hpp).
//
// Before an operation goes to the inner communicator, this rank compares it with what the others
// called, in a store next to the transport: operation, dtype, numel and root, in the order of the
// group's collectives; of messages dtype and numel, in the order of each line from rank to rank with
// one tag. Empty messages are not compared. Results and traffic are the inner communicator's.
//
// wait() asks the inner Work's test() again and again, so a rank that waits can throw. That costs
// the host's part of overlap with a GPU.
//
// Collective: the constructor. All else as Communicator.
// Throws:     Desynchronized, a CheckError, on all ranks that wait, from start(), wait() or split().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/world.hpp"

namespace ladder {

class CallBoard;

class CheckingCommunicator final : public ForwardingCommunicator {
 public:
  // A rank may wait for `timeout_s`.
  CheckingCommunicator(std::unique_ptr<Communicator> inner, double timeout_s);

  WorkPtr start(const Operation& operation) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  Traffic traffic() const override;
  void begin_step(std::int64_t step) override;

  CallBoard& board() { return *board_; }

 private:
  // A group, by the ranks of the world that belong to it.
  struct Group {
    std::string name;  // "1.0": how it was split off; of all ranks: nothing
    std::vector<int> ranks;
  };
  CheckingCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<CallBoard> board,
                       std::shared_ptr<Traffic> own_traffic, Group group);
  std::string sequence_of_collectives() const;

  std::shared_ptr<CallBoard> board_;
  // Counts what split() sends, which is none of the caller's traffic. Shared as the inner meter is.
  std::shared_ptr<Traffic> own_traffic_ = std::make_shared<Traffic>();
  Group group_;
  int num_splits_ = 0;
};

// Runs `body` with this world's communicator checked. What a rank throws while others wait for it
// is thrown with a list of them. Nothing is checked on one rank, or with a time-out of 0. With an
// infinite one, calls are compared, but ranks that wait and those that fail are left to the
// transport.
int check_collectives(World& world, double timeout_s, const std::function<int()>& body);

}  // namespace ladder
