#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

// What every transport refuses when it starts, and a part of what it says.
struct RefusedOperation {
  Operation operation;
  std::string why;
};

std::vector<RefusedOperation> refused_operations(int rank, int size) {
  const at::Tensor two = at::zeros({2}), full = at::zeros({2 * size});
  std::vector<RefusedOperation> refused = {
      {{CommOp::kAllReduce}, "undefined"},
      {{CommOp::kAllReduce, at::zeros({2, 3}).t()}, "[3, 2] and strides [1, 3] is not contiguous"},
      {{CommOp::kAllReduce, at::zeros({2}, at::kComplexFloat)}, "cannot sum ComplexFloat"},
      {{CommOp::kAllReduce, at::zeros({2}, at::kBool)}, "cannot sum Bool"},
      {{CommOp::kAllReduce, at::empty({2}, at::kMeta)}, "on meta"},
      {{CommOp::kReduceScatter, full, at::empty({2}, at::kMeta)}, "on meta"},
      {{CommOp::kReduceScatter, full}, "undefined"},
      {{CommOp::kReduceScatter, full, two.to(at::kDouble)},
       "full is Float but the shard is Double"},
      {{CommOp::kReduceScatter, at::zeros({2 * size + 1}), two},
       concat("full has ", 2 * size + 1, " elements and the shard 2")},
      {{CommOp::kAllGather, full.to(at::kInt), two}, "full is Int but the shard is Float"},
      {{CommOp::kBroadcast, two, {}, size}, concat("no root ", size)},
      {{CommOp::kBroadcast, two, {}, -1}, "no root -1"},
      {{CommOp::kSend, two, {}, size}, concat("no peer ", size)},
      {{CommOp::kRecv, two, {}, rank}, concat("its own peer, got peer ", rank)}};
  if (size > 1) refused.push_back({{CommOp::kSend, two, {}, (rank + 1) % size, -5}, "tag -5"});
  return refused;
}

class Errors : public RankTest {
 protected:
  template <class Call>
  void expect_error(Call call, const std::string& op, const std::string& part) const {
    expect_throws<CheckError>(call, {concat("rank ", rank_, " of ", size_, ": ", op, ": "), part});
  }
};

TEST_ON_RANKS(Errors, NameRankOperationAndValues) {
  const Traffic before = comm_.traffic();
  for (const RefusedOperation& refused : refused_operations(rank_, size_)) {
    expect_error([&] { comm_.start(refused.operation); }, to_string(refused.operation.kind),
                 refused.why);
  }
  EXPECT_EQ(comm_.traffic(), before) << "what is refused is not counted";
}

TEST_ON_RANKS(Errors, MessagesOfAnotherLengthAreFound) {
  if (size_ == 1) return;
  for (const std::int64_t sent_numel : {1, 3, 5000, 100000}) {
    if (rank_ == 0) comm_.send(at::ones({sent_numel}), 1, 0)->wait();
    if (rank_ == 1) {
      const at::Tensor memory = at::zeros({200000});
      const WorkPtr work = comm_.recv(memory.narrow(0, 0, 2), 0, 0);
      expect_error([&] { work->wait(); }, "recv",
                   concat("rank 0 sent ", sent_numel * 4, " bytes where 8 were expected"));
      EXPECT_TRUE(bits_equal(memory, at::zeros({200000}))) << "no memory is overrun";
    }
    comm_.barrier();
  }
}

TEST_ON_RANKS(Errors, RanksThatDisagreeOnTheSizeAreFound) {
  if (size_ == 1) return;
  const auto comm = comm_.split(0, 0);
  const at::Tensor tensor = at::ones({rank_ == 0 ? 8 : 6});
  const WorkPtr work = comm->broadcast(tensor, 0);
  if (rank_ == 0) {
    EXPECT_NO_THROW(work->wait());
  } else {
    expect_error([&] { work->wait(); }, "broadcast", "must pass the same dtype and numel");
  }
  comm_.barrier();
}

}  // namespace
}  // namespace ladder
