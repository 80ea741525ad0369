#include "common/comm/checking/checking_communicator.hpp"

#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/checking/call_board.hpp"
#include "common/comm/members.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

// "64 Float".
std::string size_of(const Operation& operation) {
  return concat(operation.tensor.numel(), " ", operation.tensor.scalar_type());
}

std::string describe(const Operation& operation, const std::vector<int>& ranks) {
  const std::string name = to_string(operation.kind);
  if (operation.is_barrier()) return name;
  const std::string text = name + " of " + size_of(operation);
  const bool has_peer = operation.is_message() || operation.kind == CommOp::kBroadcast;
  if (!has_peer) return text;
  return concat(text, operation.kind == CommOp::kSend ? " to rank " : " from rank ",
                ranks[static_cast<std::size_t>(operation.peer)],
                operation.is_message() ? concat(" with tag ", operation.tag) : "");
}

class CheckedWork final : public Work {
 public:
  CheckedWork(WorkPtr inner, std::shared_ptr<CallBoard> board, Call call, std::vector<int> ranks)
      : board_(std::move(board)),
        inner_(std::move(inner)),
        call_(std::move(call)),
        ranks_(std::move(ranks)) {}

  bool test() override { return inner_->test(); }
  void wait() override {
    board_->wait_until(call_, ranks_, [this] { return inner_->test(); });
    inner_->wait();
  }

 private:
  std::shared_ptr<CallBoard> board_;
  WorkPtr inner_;
  Call call_;
  std::vector<int> ranks_;
};

}  // namespace

CheckingCommunicator::CheckingCommunicator(std::unique_ptr<Communicator> inner, double timeout_s)
    : ForwardingCommunicator(std::move(inner)),
      board_(std::make_shared<CallBoard>(inner_, timeout_s)),
      group_{"", world_members(size())} {}

CheckingCommunicator::CheckingCommunicator(std::unique_ptr<Communicator> inner,
                                           std::shared_ptr<CallBoard> board,
                                           std::shared_ptr<Traffic> own_traffic, Group group)
    : ForwardingCommunicator(std::move(inner)),
      board_(std::move(board)),
      own_traffic_(std::move(own_traffic)),
      group_(std::move(group)) {}

void CheckingCommunicator::begin_step(std::int64_t step) {
  board_->begin_step(step);
}

// "of all ranks", "of split 1, ranks {0, 2}".
std::string CheckingCommunicator::sequence_of_collectives() const {
  if (group_.name.empty()) return kAllRanks;
  std::string text = concat("of split ", group_.name, ", ranks {");
  for (std::size_t i = 0; i < group_.ranks.size(); ++i)
    text += concat(i > 0 ? ", " : "", group_.ranks[i]);
  return text + "}";
}

WorkPtr CheckingCommunicator::start(const Operation& operation) {
  check_operation(operation, *this, Reach::kAnyDevice);  // what is refused is no call
  const bool is_message = operation.is_message();
  if (is_message && operation.tensor.numel() == 0) return inner_.start(operation);
  std::vector<int> ranks = group_.ranks;
  std::string sequence = is_message ? "" : sequence_of_collectives();
  if (is_message) {
    const int self = ranks[static_cast<std::size_t>(rank())];
    const int peer = ranks[static_cast<std::size_t>(operation.peer)];
    ranks = operation.kind == CommOp::kSend ? std::vector{self, peer} : std::vector{peer, self};
    sequence = concat("from rank ", ranks[0], " to rank ", ranks[1], " with tag ", operation.tag,
                      group_.name.empty() ? "" : " in split " + group_.name);
  }
  const std::string what = describe(operation, group_.ranks);
  const std::string must_agree = is_message ? size_of(operation) : what;
  const Call call = board_->announce(sequence, ranks, what, must_agree, operation.where);
  WorkPtr work = board_->prefer_verdict([&] { return inner_.start(operation); });
  return std::make_unique<CheckedWork>(std::move(work), board_, call, std::move(ranks));
}

Traffic CheckingCommunicator::traffic() const {
  Traffic traffic = inner_.traffic();
  return traffic -= *own_traffic_;
}

// The inner split may wait where it cannot be interrupted. So it is called once all ranks are here.
// Meanwhile the barrier moves operations on for which other ranks wait.
std::unique_ptr<Communicator> CheckingCommunicator::split(int color, int key) {
  const std::string sequence = sequence_of_collectives();
  const Call call = board_->announce(sequence, group_.ranks, "split", "split", {});
  const WorkPtr all_are_here = inner_.start({CommOp::kBarrier});
  ++(*own_traffic_)[CommOp::kBarrier].calls;
  board_->wait_until(call, group_.ranks, [&] { return all_are_here->test(); });
  all_are_here->wait();
  std::unique_ptr<Communicator> part = inner_.split(color, key);
  const std::string prefix = group_.name.empty() ? "" : group_.name + ".";
  const std::string name = concat(prefix, num_splits_++);
  if (part == nullptr) return nullptr;
  Group group = {name, members_of(*part, group_.ranks[static_cast<std::size_t>(rank())])};
  *own_traffic_ +=
      all_gather_traffic(part->size(), sizeof(std::int64_t), part->size(), part->rank());
  return std::unique_ptr<Communicator>(
      new CheckingCommunicator(std::move(part), board_, own_traffic_, std::move(group)));
}

int check_collectives(World& world, double timeout_s, const std::function<int()>& body) {
  if (timeout_s == 0 || world.comm().size() == 1) return body();
  CallBoard* board = nullptr;
  world.decorate([&](std::unique_ptr<Communicator> comm) {
    auto checking = std::make_unique<CheckingCommunicator>(std::move(comm), timeout_s);
    board = &checking->board();
    return checking;
  });
  if (std::isinf(timeout_s)) return body();  // the transport says who has failed
  const auto explained = [&](const std::string& reason) {
    const std::string who_waits = board->announce_failure(reason);
    board->leave(/*has_failed=*/true);
    return who_waits.empty() ? reason : concat(reason, "\n", who_waits);
  };
  try {
    return body();
  } catch (const Desynchronized&) {
    board->leave(/*has_failed=*/true);
    throw;
  } catch (const UsageError& error) {
    throw UsageError(explained(error.what()));
  } catch (const c10::Error& error) {  // its what() has a stack trace
    throw CheckError(explained(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw CheckError(explained(error.what()));
  }
}

}  // namespace ladder
