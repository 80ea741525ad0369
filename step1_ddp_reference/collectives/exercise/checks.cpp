// Judges the all-reduce on small tensors, over messages that no transport buffers. There is no
// training: the trainers use the all-reduces of the transports.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/comm/argument_checks.hpp"
#include "common/comm/contract/rank_values.hpp"
#include "common/comm/forwarding_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/comm/traffic_theory.hpp"
#include "common/comm/tree_fold.hpp"
#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/timer.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"
#include "common/testing/time_limit.hpp"
#include "step1_ddp_reference/collectives/all_reduce_from_messages.hpp"

namespace ladder {
namespace collectives {
namespace {

constexpr double kPatienceSeconds = 2;
constexpr std::int64_t kLongestBytes = 8 << 10;  // of a message

// What travels has the same length whatever the message's, and says it: so a wrong length is found
// by the answer's own wait(), not by whoever happens to make MPI move.
constexpr std::int64_t kEnvelopeBytes = kLongestBytes + sizeof(std::int64_t);

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

// A Communicator for the judge whose messages show the mistakes that a fast transport hides.
//
//   no buffers    a send is done only once its receiver has called recv: behind every message
//                 comes an acknowledgement. With buffers, as MPI has for small messages, it is
//                 done at once
//   no luck       what is received appears when its wait() is called (or test() is true), and never
//                 before; until then the elements are NaN
//   no hang       what is not done after kPatienceSeconds, times time_scale(), throws a CheckError
//                 that names both ranks, from wait() or test()
//   no overlap    elements that a message on its way reads or writes may not be received into, and
//                 what is being sent may not change before it has been waited for (without buffers)
//   no collective, no split and no tag but 0 and 1
//
// An answer that fails leaves nothing behind: messages have a group of their own for each check, and
// finish() sends what others still wait for, and receives what nobody has received. Its own
// memory is kOther.
//
// Collective: the constructor and finish().
// Lifetime:   `inner` and `agreements` outlive this, and its Works.
class UnbufferedCommunicator : public ForwardingCommunicator {
 public:
  UnbufferedCommunicator(Communicator& inner, Communicator& agreements, bool has_buffers = false)
      : ForwardingCommunicator(inner),
        has_buffers_(has_buffers),
        agreements_(agreements),
        messages_(inner.split(0, inner.rank())),
        acknowledgements_(inner.split(0, inner.rank())) {}

  WorkPtr start(const Operation& operation) override {
    check(operation.is_message(), to_string(operation.kind),
          " is a collective; this all-reduce is made of send and recv");
    check_operation(operation, *this);
    check(operation.tag <= 1, "a ", to_string(operation.kind), " has the tag ", operation.tag,
          "; this all-reduce has 0 and 1 for itself, and others may use the rest");
    if (!has_buffers_) check_overlap(operation);
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
    message.is_buffered = has_buffers_;
    if (tensor.nbytes() == 0) {
      message.has_travelled = message.is_acknowledged = true;
    } else {
      post(message, is_send ? new_envelope(tensor) : new_bytes(kEnvelopeBytes));
      if (!is_send) std::memset(data_of(tensor), 0xff, tensor.nbytes());
    }
    return std::make_unique<MessageWork>(all_.back());
  }
  std::unique_ptr<Communicator> split(int /*color*/, int /*key*/) override {
    throw CheckError("split is not needed here");
  }

  // What the answer has sent, without acknowledgements and what finish() sends.
  Traffic traffic() const override { return traffic_; }
  int num_never_waited_for() const {
    return static_cast<int>(
        std::count_if(all_.begin(), all_.end(), [](const auto& it) { return !it->is_waited_for; }));
  }
  void finish() {
    post_what_is_missing();
    for (const auto& message : all_) {
      while (!message->test_all()) std::this_thread::yield();
    }
  }

 private:
  struct Message {
    Operation of_answer;  // without a tensor in what finish() posts
    int rank = 0;
    bool is_buffered = false;
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
      const bool is_gone = is_send() && is_buffered;
      if (!is_gone && (!has_travelled || (is_send() && !is_acknowledged))) {
        check(since_start.seconds() < kPatienceSeconds * time_scale(),
              [this] { return what_is_missing(); });
        return false;
      }
      if (!std::exchange(is_done, true) && !is_empty()) conclude();
      return true;
    }

    // What has arrived appears. What was sent must be what it was. Nothing of it is kept.
    void conclude() {
      const at::Tensor tensor = std::exchange(of_answer.tensor, {});
      if (is_send()) {
        return check(is_buffered ||
                         std::memcmp(data_of(tensor), contents_of(envelope), tensor.nbytes()) == 0,
                     "rank ", rank, " has changed what it sends to rank ", of_answer.peer,
                     " before it waited for the send");
      }
      const auto wanted = static_cast<std::int64_t>(tensor.nbytes()), found = length_in(envelope);
      check(found == wanted, "rank ", rank, " receives ", found, " bytes from rank ",
            of_answer.peer, " (tag ", of_answer.tag, ") where it expects ", wanted);
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

  class MessageWork final : public Work {
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

  void post(Message& message, const at::Tensor& envelope) {
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
  void check_overlap(const Operation& operation) const {
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
  // One line for each message that travels: whether it is a send, peer, tag.
  std::string log() const {
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
  void post_what_is_missing() {
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

  const bool has_buffers_;
  Communicator& agreements_;
  std::unique_ptr<Communicator> messages_, acknowledgements_;
  std::vector<std::shared_ptr<Message>> all_;
  Traffic traffic_;
};

class BufferedCommunicator final : public UnbufferedCommunicator {
 public:
  BufferedCommunicator(Communicator& inner, Communicator& agreements)
      : UnbufferedCommunicator(inner, agreements, /*has_buffers=*/true) {}
};

// A transport whose peers are gone: each message fails when it is waited for.
class BrokenCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  WorkPtr start(const Operation& /*operation*/) override { return std::make_unique<BrokenWork>(); }

 private:
  struct BrokenWork final : Work {
    bool test() override { throw CheckError("the peer is gone"); }
    void wait() override { throw CheckError("the peer is gone"); }
  };
};

// What the ranks add up.
struct Shape {
  std::string name;  // "fp32"
  at::ScalarType dtype;
  std::int64_t numel;
  int zero_rank = -1;  // has nothing but zeros
};

// Values of different magnitudes, so that each order of additions has bits of its own; integers
// that no floating-point number holds.
at::Tensor values_of(int rank, const Shape& shape) {
  if (rank == shape.zero_rank) return at::zeros({shape.numel}, shape.dtype);
  if (shape.dtype == at::kLong)
    return at::arange(1, shape.numel + 1, at::kLong).mul_((std::int64_t{1} << 48) + 3).add_(rank);
  return at::arange(1, shape.numel + 1, at::kDouble)
      .mul_(0.7 + rank)
      .sin_()
      .mul_(std::pow(10.0, rank % 4))
      .to(shape.dtype);
}

constexpr std::pair<const char*, at::ScalarType> kTypes[] = {{"fp32", at::kFloat},
                                                             {"bf16", at::kBFloat16},
                                                             {"fp16", at::kHalf},
                                                             {"fp64", at::kDouble},
                                                             {"int64", at::kLong}};

// All but the messages that the judge itself holds.
struct HeldBytes {
  std::int64_t live = 0, peak = 0;
};
HeldBytes bytes_of_answer() {
  const MemoryReading reading = read_memory();
  HeldBytes held;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category == MemoryCategory::kOther) continue;
    held.live += reading.live(category);
    held.peak += reading.peak(category);
  }
  return held;
}

class Checks : public Examination {
 public:
  enum class Looks { kAtSums, kAtSumsWithoutBuffers, kAtAll };
  // counts_memory: false if ranks are threads, which share one memory ledger.
  explicit Checks(Communicator& comm, Looks looks = Looks::kAtAll, bool counts_memory = true)
      : Examination(comm), looks_(looks), counts_memory_(counts_memory) {}

  // All types, awkward sizes, and one rank that has only zeros.
  void all_sums() {
    const std::int64_t size = comm_.size();
    for (const auto& [name, dtype] : kTypes)
      sums(name, dtype, {1001, size, size - 1, 1, 0, size + 1, 1003});
    for (int rank = 0; rank < comm_.size(); ++rank)
      examine_sum(concat("zeros on rank ", rank), {"fp32", at::kFloat, 100, rank});
  }

  void sums(const std::string& name, at::ScalarType dtype,
            const std::vector<std::int64_t>& numels) {
    for (const std::int64_t numel : numels) {
      const Shape shape = {name, dtype, numel};
      examine_sum(text_of(shape), shape);
    }
  }

  // Nothing after a fault: each wait that does not end takes time.
  void examine_sum(const std::string& what, const Shape& shape) {
    if (!faults().empty()) return;
    const auto part = [&](UnbufferedCommunicator& comm) {
      prefix_ = what + ": ";
      sums_twice(shape, comm);
    };
    if (looks_ == Looks::kAtSums) {
      examine<BufferedCommunicator>(what, part);
    } else {
      examine<UnbufferedCommunicator>(what, part);
    }
  }

  // Even and odd ranks have a group each, the last rank first: rank and size are the group's.
  void sums_in_groups() {
    const std::string what = "two groups, in the opposite order of ranks";
    examine(what, [&](Communicator&) {
      prefix_ = what + ": ";
      const auto group = comm_.split(comm_.rank() % 2, -comm_.rank());
      const auto agreements = group->split(0, group->rank());
      UnbufferedCommunicator comm(*group, *agreements);
      std::exception_ptr error;
      try {
        sums_twice({"fp32", at::kFloat, 1001}, comm);
      } catch (...) {
        error = std::current_exception();
      }
      comm.finish();
      if (error) std::rethrow_exception(error);
    });
  }

  void passes_errors_on() {
    examine("a message that fails", [&](Communicator&) {
      BrokenCommunicator broken(comm_);
      const at::Tensor tensor = values_of(comm_.rank(), {"fp32", at::kFloat, 100});
      expect_error("an all-reduce whose peer is gone", {"the peer is gone"},
                   [&] { all_reduce_from_messages(tensor, broken); });
    });
  }

  static std::string text_of(const Shape& shape) {
    return concat(shape.name, ", ", shape.numel, shape.numel == 1 ? " element" : " elements",
                  shape.zero_rank < 0 ? "" : concat(", zeros on rank ", shape.zero_rank));
  }

 private:
  // Two calls in a row: a message of the first call must not get into the second.
  void sums_twice(const Shape& shape, UnbufferedCommunicator& comm) {
    const std::int64_t numel = shape.numel;
    // Part of a longer tensor, of which the rest must stay as it is.
    const at::Tensor longer = at::full({numel + 2 * kMargin}, -1, shape.dtype);
    const at::Tensor part = longer.narrow(0, kMargin, numel);
    part.copy_(values_of(comm.rank(), shape));
    const at::Tensor second = values_of(comm.rank() + 1, shape);
    // A view with another number of dimensions, if possible.
    const at::Tensor view = numel == 1       ? part.view(at::IntArrayRef())
                            : numel % 7 == 0 ? part.view({7, numel / 7})
                                             : part;

    reset_memory_peaks();
    const HeldBytes before = bytes_of_answer();
    all_reduce_from_messages(view, comm);
    const HeldBytes after = bytes_of_answer();
    const int num_never_waited_for = comm.num_never_waited_for();
    const OpTraffic found = comm.traffic()[CommOp::kSend];
    all_reduce_from_messages(second, comm);

    expect("the sum", part, wanted_sum(0, shape, comm.size()));
    expect("the sum of a second call", second, wanted_sum(1, shape, comm.size()));
    longer.narrow(0, kMargin, numel).fill_(-1);
    expect("what is next to the tensor", longer, at::full_like(longer, -1));
    if (looks_ != Looks::kAtAll) return;
    expect("the number of operations never waited for", num_never_waited_for, 0);
    const OpTraffic wanted = all_reduce_traffic(numel, part.element_size(), comm.size(),
                                                comm.rank())[CommOp::kAllReduce];
    expect("the number of bytes sent", found.bytes_sent, wanted.bytes_sent);
    expect("the number of messages sent", found.messages, wanted.messages);
    if (!counts_memory_) return;
    const std::int64_t own = slice_of(numel, comm.size(), comm.rank()).numel;
    const std::int64_t most = (comm.size() - 1) * own * part.element_size();
    const std::int64_t scratch = after.peak - before.peak, kept = after.live - before.live;
    if (scratch > most + kScalarBytes) {
      fault(concat("the scratch memory is ", scratch, " bytes, not ", most, ": ",
                   comm.size() == 1 ? "one rank has nothing to collect"
                                    : concat(comm.size() - 1, " times ", own, " elements")));
    }
    if (kept > 0) fault(concat(kept, " bytes of scratch memory stay when the call returns"));
  }

  // The sum of all ranks' values_of(rank + offset).
  static at::Tensor wanted_sum(int offset, const Shape& shape, int num_ranks) {
    return wanted_tree(0, num_ranks, [&](int rank) { return values_of(rank + offset, shape); });
  }

  const Looks looks_;
  const bool counts_memory_;
  static constexpr std::int64_t kMargin = 5;
  static constexpr std::int64_t kScalarBytes = 64;  // libtorch may need some: they do not count
};

Shape any_shape(Draw& draw, int num_ranks) {
  const auto& [name, dtype] = kTypes[draw.number(0, std::ssize(kTypes) - 1)];
  const std::int64_t numel = draw.number(2 * num_ranks, 1000);
  return {name, dtype, numel, draw.coin() ? static_cast<int>(draw.number(0, num_ranks - 1)) : -1};
}

// Judges on more ranks than a learner starts.
std::vector<std::string> faults_on_threads(int num_ranks, const std::vector<Shape>& shapes) {
  std::vector<std::string> faults;
  run_as_threads(num_ranks, [&](Communicator& comm) {
    Checks checks(comm, Checks::Looks::kAtAll, /*counts_memory=*/false);
    for (const Shape& shape : shapes)
      checks.examine_sum(concat(num_ranks, " ranks, ", Checks::text_of(shape)), shape);
    if (comm.rank() == 0) faults = checks.faults();
  });
  return faults;
}

std::vector<std::string> faults_of_sums(Communicator& comm, Checks::Looks looks) {
  Checks checks(comm, looks);
  checks.all_sums();
  return checks.faults();
}

std::vector<std::string> all_faults(Communicator& comm) {
  Draw draw(comm);
  Checks checks(comm);
  checks.all_sums();
  if (checks.faults().empty()) checks.sums_in_groups();
  if (checks.faults().empty() && comm.size() > 1) checks.passes_errors_on();
  if (!checks.faults().empty()) return checks.faults();
  const Shape drawn = any_shape(draw, comm.size());
  checks.examine_sum(draw.announce(Checks::text_of(drawn)), drawn);
  if (comm.size() == 4) {
    const int many = static_cast<int>(draw.number(5, 9));
    checks.examine_next("more ranks, as threads", [&](Communicator&) {
      if (comm.rank() > 0) return;
      for (const int num_ranks : {many, 6}) {
        const Shape shape = any_shape(draw, num_ranks);
        for (const std::string& line :
             faults_on_threads(num_ranks, {{"fp32", at::kFloat, 101}, shape}))
          checks.fault(line);
      }
    });
  }
  return checks.faults();
}

}  // namespace
}  // namespace collectives

std::vector<std::string> judge_linked(Communicator& comm) {
  using collectives::Checks;
  install_memory_ledger();
  return faults_in_levels(
      {{"the right sum", [&] { return collectives::faults_of_sums(comm, Checks::Looks::kAtSums); }},
       {"no deadlock without buffers",
        [&] { return collectives::faults_of_sums(comm, Checks::Looks::kAtSumsWithoutBuffers); }},
       {"bytes and scratch", [&] { return collectives::all_faults(comm); }}});
}

}  // namespace ladder
