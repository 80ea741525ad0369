// A group of ranks that one can call collectives on.
//
// Every call but send, recv and the getters is collective: all ranks of the group call it, in the
// same order, with tensors of the same dtype and numel. What differs between ranks is undefined,
// except where a transport can see it.
//
// An operation is started by the call and done after wait() on the Work that comes back. Until then
// nobody may read or write its tensors, and they must stay alive (Work holds a reference to them).
// Several operations may be in flight, on several groups too; they may be waited for in any order.
// Waiting for one moves all of them on, and so does every test(), even of one that is done.
// Dropping a Work without wait() is an error of the caller's.
//
// Sums are folded in rank order, ((x0 + x1) + x2) + …, elementwise in the tensor's own dtype: the
// same bits on every rank, whatever the size of the group's buffers. That is what lets the steps of
// the course be compared exactly.
//
// Tensors are contiguous. Movement takes any dtype; reductions float16, bfloat16, float32, float64,
// int32, int64. Any numel is allowed, 0 and 1 included. Results are written behind autograd's back:
// no version counter moves.
//
// Threads: one thread at a time per process.
// Throws:  CheckError naming rank, operation and sizes: wrong arguments from the call, what another
//          rank did wrong from test() or wait(), of whichever operation finds it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "common/comm/traffic.hpp"

namespace ladder {

// A started operation.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool test() = 0;  // moves all operations on without blocking; true once this is done
  virtual void wait() = 0;  // returns when the result may be read (CPU: by this thread; CUDA: by
                            // the current stream)
};
using WorkPtr = std::unique_ptr<Work>;

class Communicator {
 public:
  virtual ~Communicator() = default;  // local: never communicates

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual WorkPtr all_reduce(at::Tensor inout) = 0;  // sum over ranks, on every rank
  // full: size() equal pieces (numel divisible by size()); the sum of piece r lands in rank r's
  // shard, which may be piece r itself. The rest of full is only read.
  virtual WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) = 0;
  // The shards of all ranks, concatenated in rank order, on every rank. full.numel() = size() ·
  // shard.numel(). The shard may be its own place in full.
  virtual WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) = 0;
  virtual WorkPtr broadcast(at::Tensor inout, int root) = 0;
  // Point to point: `peer` is another rank, `tag` any number from 0 (MPI promises 32767). Messages
  // of one sender with one tag arrive in the order in which they were sent.
  virtual WorkPtr send(const at::Tensor& tensor, int peer, int tag) = 0;
  virtual WorkPtr recv(at::Tensor tensor, int peer, int tag) = 0;
  virtual void barrier() = 0;

  // A new group of the ranks that pass the same color, ordered by key and then by old rank.
  // Collective over this group. A negative color joins no group: the result is null.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // What this rank has sent so far through this group and all groups that share its meter: those that
  // were split from it, or from which it was split.
  virtual Traffic traffic() const = 0;
};

// The sums over all ranks of these numbers, in one all-reduce, folded in rank order. Collective,
// blocking.
void all_reduce_sum(std::span<double> values, Communicator& comm);
double all_reduce_sum(double value, Communicator& comm);

}  // namespace ladder
