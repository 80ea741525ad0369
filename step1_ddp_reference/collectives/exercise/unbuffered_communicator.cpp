#include "step1_ddp_reference/collectives/exercise/unbuffered_communicator.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include "common/comm/argument_checks.hpp"
#include "common/comm/rank_order_fold.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/timer.hpp"
#include "common/testing/time_limit.hpp"

namespace ladder::collectives {
namespace {

// What travels has the same length whatever the message's, and says it: so a wrong length is found
// by the answer's own wait(), not by whoever happens to make MPI move.
constexpr std::int64_t kEnvelopeBytes =
    UnbufferedCommunicator::kLongestBytes + sizeof(std::int64_t);

at::Tensor new_bytes(std::int64_t num_bytes) {
  const MemoryScope scope(MemoryCategory::kOther, "messages");  // none of the answer's
  return at::zeros({num_bytes}, at::kByte);
}

at::Tensor new_envelope(const at::Tensor& contents) {
  const at::Tensor envelope = new_bytes(kEnvelopeBytes);
  const auto length = static_cast<std::int64_t>(contents.nbytes());
  std::memcpy(data_of(envelope), &length, sizeof length);
  std::memcpy(data_of(envelope) + sizeof length, data_of(contents), contents.nbytes());
  return envelope;
}

std::int64_t length_in(const at::Tensor& envelope) {
  std::int64_t length = 0;
  std::memcpy(&length, data_of(envelope), sizeof length);
  return length;
}

const std::byte* contents_of(const at::Tensor& envelope) {
  return data_of(envelope) + sizeof(std::int64_t);
}

}  // namespace

struct UnbufferedCommunicator::Message {
  Operation of_answer;  // without a tensor in what finish() posts
  int rank = 0;
  at::Tensor envelope;
  WorkPtr message, acknowledgement;  // an empty message has none
  Timer since_start;
  bool has_travelled = false, is_acknowledged = false, is_done = false, is_waited_for = false;

  bool is_send() const { return of_answer.kind == CommOp::kSend; }
  bool is_empty() const { return message == nullptr; }

  bool test_all() {
    if (!has_travelled) has_travelled = message->test();
    if (!is_acknowledged) is_acknowledged = acknowledgement->test();
    return has_travelled && is_acknowledged;
  }

  bool test() {
    test_all();
    if (!has_travelled || (is_send() && !is_acknowledged)) {
      check(since_start.seconds() < kPatienceSeconds * time_scale(),
            [this] { return what_is_missing(); });
      return false;
    }
    if (!std::exchange(is_done, true) && !is_empty()) conclude();
    return true;
  }

  // What has arrived appears. What was sent must be what it was.
  void conclude() {
    const at::Tensor& tensor = of_answer.tensor;
    if (is_send()) {
      return check(std::memcmp(data_of(tensor), contents_of(envelope), tensor.nbytes()) == 0,
                   "rank ", rank, " has changed what it sends to rank ", of_answer.peer,
                   " before it waited for the send");
    }
    const auto wanted = static_cast<std::int64_t>(tensor.nbytes()), found = length_in(envelope);
    check(found == wanted, "rank ", rank, " receives ", found, " bytes from rank ", of_answer.peer,
          " (tag ", of_answer.tag, ") where it expects ", wanted);
    std::memcpy(data_of(tensor), contents_of(envelope), tensor.nbytes());
  }

  std::string what_is_missing() const {
    const std::int64_t numel = of_answer.tensor.numel();
    const std::string what =
        concat(numel, numel == 1 ? " element" : " elements", " (tag ", of_answer.tag, ")");
    const int peer = of_answer.peer;
    return is_send() ? concat("rank ", rank, " waits until rank ", peer, " calls recv for its ",
                              what, ", and rank ", peer, " does not")
                     : concat("rank ", rank, " waits for ", what, " from rank ", peer,
                              ", and rank ", peer, " does not send them");
  }
};

class UnbufferedCommunicator::MessageWork final : public Work {
 public:
  explicit MessageWork(std::shared_ptr<Message> message) : message_(std::move(message)) {}

  bool test() override { return message_->test(); }
  void wait() override {
    while (!message_->test()) std::this_thread::yield();
    message_->is_waited_for = true;
  }

 private:
  std::shared_ptr<Message> message_;
};

UnbufferedCommunicator::UnbufferedCommunicator(Communicator& inner, Communicator& agreements)
    : ForwardingCommunicator(inner),
      agreements_(agreements),
      messages_(inner.split(0, inner.rank())),
      acknowledgements_(inner.split(0, inner.rank())) {}

std::unique_ptr<Communicator> UnbufferedCommunicator::split(int /*color*/, int /*key*/) {
  throw CheckError("split is not needed here");
}

WorkPtr UnbufferedCommunicator::start(const Operation& operation) {
  check(operation.is_message(), to_string(operation.kind),
        " is a collective; this all-reduce is made of send and recv");
  check_operation(operation, *this);
  check(operation.tag <= 1, "a ", to_string(operation.kind), " has the tag ", operation.tag,
        "; this all-reduce has 0 and 1 for itself, and others may use the rest");
  check_overlap(operation);
  const at::Tensor& tensor = operation.tensor;
  check(static_cast<std::int64_t>(tensor.nbytes()) <= kLongestBytes, "rank ", rank(), ": a ",
        to_string(operation.kind), " of ", tensor.numel(),
        " elements is longer than any tensor here");
  const bool is_send = operation.kind == CommOp::kSend;
  if (is_send) traffic_ += send_traffic(tensor.numel(), tensor.element_size());
  all_.push_back(std::make_shared<Message>());
  Message& message = *all_.back();
  message.of_answer = operation;
  message.rank = rank();
  if (tensor.nbytes() == 0) {
    message.has_travelled = message.is_acknowledged = true;
  } else {
    post(message, is_send ? new_envelope(tensor) : new_bytes(kEnvelopeBytes));
    if (!is_send) std::memset(data_of(tensor), 0xff, tensor.nbytes());
  }
  return std::make_unique<MessageWork>(all_.back());
}

void UnbufferedCommunicator::post(Message& message, const at::Tensor& envelope) {
  const int peer = message.of_answer.peer, tag = message.of_answer.tag;
  message.envelope = envelope;
  if (message.is_send()) {
    message.message = messages_->send(envelope, peer, tag);
    message.acknowledgement = acknowledgements_->recv(new_bytes(1), peer, tag);
  } else {
    message.message = messages_->recv(envelope, peer, tag);
    message.acknowledgement = acknowledgements_->send(new_bytes(1), peer, tag);
  }
}

void UnbufferedCommunicator::check_overlap(const Operation& operation) const {
  const auto range_of = [](const at::Tensor& tensor) {
    return std::pair(data_of(tensor), data_of(tensor) + tensor.nbytes());
  };
  const auto [begin, end] = range_of(operation.tensor);
  for (const auto& other : all_) {
    const bool are_sends = other->is_send() && operation.kind == CommOp::kSend;
    if (other->is_done || other->is_empty() || are_sends) continue;
    const auto [other_begin, other_end] = range_of(other->of_answer.tensor);
    check(end <= other_begin || other_end <= begin, "rank ", rank(), " starts a ",
          to_string(operation.kind), " of elements that a ", to_string(other->of_answer.kind),
          " on its way still ", other->is_send() ? "reads" : "writes");
  }
}

int UnbufferedCommunicator::num_never_waited_for() const {
  return static_cast<int>(
      std::count_if(all_.begin(), all_.end(), [](const auto& it) { return !it->is_waited_for; }));
}

// One line for each message that travels: whether it is a send, peer, tag.
std::string UnbufferedCommunicator::log() const {
  std::string lines;
  for (const auto& message : all_) {
    const Operation& operation = message->of_answer;
    if (message->is_empty()) continue;
    lines += concat(message->is_send(), " ", operation.peer, " ", operation.tag, "\n");
  }
  return lines;
}

// Messages from one sender with the same tag fill the receives in order, so what is missing is what
// one side has called more often than the other.
void UnbufferedCommunicator::post_what_is_missing() {
  const std::vector<std::string> logs = all_gather_text(log(), agreements_);
  std::map<std::tuple<int /*from*/, int /*to*/, int /*tag*/>, int> more_sent_than_received;
  for (int r = 0; r < size(); ++r) {
    std::istringstream lines(logs[static_cast<std::size_t>(r)]);
    bool is_send = false;
    for (int peer = 0, tag = 0; lines >> is_send >> peer >> tag;) {
      is_send ? ++more_sent_than_received[{r, peer, tag}]
              : --more_sent_than_received[{peer, r, tag}];
    }
  }
  for (const auto& [key, excess] : more_sent_than_received) {
    const auto [from, to, tag] = key;
    if ((excess > 0 ? to : from) != rank()) continue;
    for (int i = 0; i < std::abs(excess); ++i) {
      all_.push_back(std::make_shared<Message>());
      Message& message = *all_.back();
      message.of_answer = {.kind = excess > 0 ? CommOp::kRecv : CommOp::kSend,
                           .peer = excess > 0 ? from : to,
                           .tag = tag};
      post(message, new_bytes(kEnvelopeBytes));
    }
  }
}

void UnbufferedCommunicator::finish() {
  post_what_is_missing();
  for (const auto& message : all_) {
    while (!message->test_all()) std::this_thread::yield();
  }
}

}  // namespace ladder::collectives
