// A group of ranks to call collectives on.
//
// Every call except send, recv and the getters is collective: all ranks of the group call it, in
// the same order, with tensors of the same dtype and numel. If ranks differ in these, the behavior
// is undefined unless the transport detects it.
//
// A call starts an operation and returns a Work; the operation is done once wait() on it returns.
// Until then no code may read or write the operation's tensors, and they must stay alive (Work
// holds a reference to them). Several operations may be in flight at once, even on several groups,
// and may be waited for in any order. Waiting for one of them advances all of them; so does every
// test(), even on an operation that is done. Never drop a Work without calling wait().
//
// Sums are those of a tree, (x0 + x1) + (x2 + x3) (tree_sum.hpp), elementwise in the tensor's own
// dtype, so every rank gets the same bits, whatever the size of the group's buffers. This is why the
// steps of the course can be compared exactly.
//
// Tensors must be contiguous. Data movement takes any dtype; reductions take float16, bfloat16,
// float32, float64, int32, int64. Any numel is allowed, including 0 and 1. Results are written
// behind autograd's back: no version counter changes.
//
// Threads: one thread at a time per rank.
// Throws:  CheckError naming rank, operation and sizes. The call itself throws for wrong arguments;
//          another rank's mistake is thrown by the test() or wait() that detects it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/machines.hpp"
#include "common/comm/operation.hpp"

namespace ladder {

// A started operation.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool test() = 0;  // advances all operations without blocking; true once this one is done
  virtual void wait() = 0;  // returns when the result may be read (CPU: by this thread; CUDA: by
                            // the current stream)
};
using WorkPtr = std::unique_ptr<Work>;

// What has been done when it starts.
class DoneWork final : public Work {
 public:
  bool test() override { return true; }
  void wait() override {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;  // local: never communicates

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // All calls below, so that a transport carries out, and a decorator overrides, one function.
  // Transports check the operation (argument_checks.hpp); decorators need not.
  virtual WorkPtr start(const Operation& operation) = 0;

  // The last argument of each is where it is called, for messages: leave it out.

  // The sum over ranks, on every rank.
  WorkPtr all_reduce(at::Tensor inout, CallSite where = CallSite::current()) {
    return start({CommOp::kAllReduce, std::move(inout), {}, 0, 0, where});
  }
  // `full` consists of size() equal slices (its numel is divisible by size()). The sum of slice r
  // lands in rank r's shard, which may be slice r itself. The rest of `full` is only read.
  WorkPtr reduce_scatter(at::Tensor full, at::Tensor shard, CallSite where = CallSite::current()) {
    return start({CommOp::kReduceScatter, std::move(full), std::move(shard), 0, 0, where});
  }
  // Writes the shards of all ranks, concatenated in rank order, to every rank's `full`.
  // full.numel() = size() · shard.numel(). The shard may be its own slice of `full`.
  WorkPtr all_gather(at::Tensor shard, at::Tensor full, CallSite where = CallSite::current()) {
    return start({CommOp::kAllGather, std::move(full), std::move(shard), 0, 0, where});
  }
  WorkPtr broadcast(at::Tensor inout, int root, CallSite where = CallSite::current()) {
    return start({CommOp::kBroadcast, std::move(inout), {}, root, 0, where});
  }
  // Point to point: `peer` is another rank; `tag` is 0 or greater (MPI guarantees tags up to
  // 32767). Messages from one sender with the same tag arrive in the order in which they were sent.
  // Whether a send can be done before its receiver calls recv is up to the transport. So ranks that
  // send to each other start their receives before they wait for their sends.
  WorkPtr send(at::Tensor tensor, int peer, int tag, CallSite where = CallSite::current()) {
    return start({CommOp::kSend, std::move(tensor), {}, peer, tag, where});
  }
  WorkPtr recv(at::Tensor tensor, int peer, int tag, CallSite where = CallSite::current()) {
    return start({CommOp::kRecv, std::move(tensor), {}, peer, tag, where});
  }
  void barrier(CallSite where = CallSite::current()) {
    start({CommOp::kBarrier, {}, {}, 0, 0, where})->wait();
  }

  // Returns a new group of the ranks that pass the same color, ordered by key and then by old rank.
  // Collective over this group. A rank that passes a negative color joins no group and gets null.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Splits by a color that follows from a rank's number: every rank passes the same function. The
  // new group keeps the order of ranks.
  using ColorOfRank = std::function<int(int rank)>;
  virtual std::unique_ptr<Communicator> split_by(const ColorOfRank& color_of) {
    return split(color_of(rank()), rank());
  }

  // What this rank has sent so far through this group and all groups that share its meter: the
  // groups split from it and the groups from which it was split.
  virtual Traffic traffic() const = 0;

  // Where the group's ranks are.
  virtual Machines machines() const { return {}; }

  // Calls from now on belong to this optimizer step, which messages about them name. Local.
  virtual void begin_step(std::int64_t /*step*/) {}
  // Whether operations on such a tensor are carried out in the order of their start, in all groups
  // of the world. Then one may be started on what another brings, before that is there.
  virtual bool runs_in_order(const at::Tensor& /*tensor*/) const { return false; }
  // Promises that this group's operations end even if ranks carry out one at a time, in order,
  // and sends wait for receives: then NCCL's messages pass no host. Local; made before the first.
  virtual void promise_message_order() {}
  // How long a simulated rank has waited so far, without time passing; nothing for a real one.
  virtual std::optional<double> simulated_wait_s() const { return std::nullopt; }
};

// What a rank passes to split(), and the ranks that then form the group of this color, in its
// order.
struct ColorAndKey {
  int color, key;
};
std::vector<int> ranks_of_color(int color, std::span<const ColorAndKey> passed_by_rank);

// Sums these numbers over all ranks in one all-reduce. Collective, blocking.
void all_reduce_sum(std::span<double> values, Communicator& comm,
                    CallSite where = CallSite::current());
double all_reduce_sum(double value, Communicator& comm, CallSite where = CallSite::current());

// The texts of all ranks, in rank order, on every rank: reports, options. Collective, blocking.
std::vector<std::string> all_gather_text(const std::string& text, Communicator& comm,
                                         CallSite where = CallSite::current());

}  // namespace ladder
