#include "common/comm/traffic_theory.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <set>

#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

// 3 GiB on two ranks: 1.5 GiB each way, in pieces of at most 1 GiB. No meter measures these.
TEST(TrafficTheory, LongMessagesCountAsSeveral) {
  const std::int64_t gib = std::int64_t{1} << 30;
  Traffic expected;
  expected[CommOp::kAllReduce] = {1, 3 * gib, 4};
  EXPECT_EQ(all_reduce_traffic(3 * gib / 4, 4, 2, 0), expected);
  expected = {};
  expected[CommOp::kSend] = {1, gib, 1};
  EXPECT_EQ(send_traffic(gib, 1), expected);
  expected[CommOp::kSend] = {1, gib + 1, 2};
  EXPECT_EQ(send_traffic(gib + 1, 1), expected);
}

// 64 ranks with eight on a machine send as much as on one, but 7 of 63 parts go outside instead of
// 56. It takes a round more each way.
TEST(TrafficTheory, MachinesSendOnlyTheirSumsOutside) {
  constexpr std::int64_t kPart = 100 * 4;
  for (const int rank : {0, 9, 63}) {
    const Sent near = sent_by(CommOp::kAllReduce, 6400, 4, 64, rank);
    const Sent far = sent_by(CommOp::kAllReduce, 6400, 4, 64, rank, 0, machines_of(64, 8));
    Traffic wanted = near.traffic;
    wanted[CommOp::kAllReduce].outer_bytes = 2 * 7 * kPart;
    EXPECT_EQ(far.traffic, wanted);
    EXPECT_EQ(near.links, (LinksUse{.inside = {2, 2 * 63 * kPart}, .outside = {}}));
    EXPECT_EQ(far.links, (LinksUse{.inside = {2, 2 * 56 * kPart}, .outside = {2, 2 * 7 * kPart}}));
    const Sent direct =
        sent_by(CommOp::kAllReduce, 6400, 4, 64, rank, 0, machines_of(64, 8).without_grid());
    EXPECT_EQ(direct.links,
              (LinksUse{.inside = {2, 2 * 7 * kPart}, .outside = {2, 2 * 56 * kPart}}));
  }
}

class TrafficOfCalls : public RankTest {
 protected:
  std::set<std::int64_t> hostile_numels() const {
    return {0, 1, 2, 3, size_ - 1, size_, size_ + 1, 2 * size_ - 1, 1000, 1000003};
  }
  template <class Call>
  void expect_sends(const Traffic& expected, Call call) const {
    EXPECT_EQ(sent_in(comm_, [&] { call()->wait(); }), expected);
  }
};

const std::vector<at::ScalarType> kDtypes = {at::kBFloat16, at::kFloat, at::kDouble};

TEST_ON_RANKS(TrafficOfCalls, AllReduceSendsWhatTheFormulaSays) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t numel : hostile_numels()) {
      SCOPED_TRACE(::testing::Message() << dtype << " " << numel);
      const at::Tensor tensor = at::ones({numel}, dtype);
      const Traffic expected =
          all_reduce_traffic(numel, tensor.element_size(), size_, rank_, comm_.machines());
      expect_sends(expected, [&] { return comm_.all_reduce(tensor); });
      // Over all ranks: 2 k (N−1), the volume of a ring.
      EXPECT_EQ(all_reduce_sum(static_cast<double>(expected.bytes_sent()), comm_),
                static_cast<double>(2 * numel * (size_ - 1) * tensor.element_size()));
    }
  }
}

TEST_ON_RANKS(TrafficOfCalls, ShardsSendWhatTheFormulasSay) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t numel : hostile_numels()) {
      SCOPED_TRACE(::testing::Message() << dtype << " " << numel);
      const at::Tensor full = at::ones({size_ * numel}, dtype);
      const at::Tensor shard = at::empty({numel}, dtype);
      const std::int64_t item_bytes = full.element_size();
      expect_sends(reduce_scatter_traffic(full.numel(), item_bytes, size_, rank_, comm_.machines()),
                   [&] { return comm_.reduce_scatter(full, shard); });
      expect_sends(all_gather_traffic(full.numel(), item_bytes, size_, rank_, comm_.machines()),
                   [&] { return comm_.all_gather(shard, full); });
    }
  }
}

TEST_ON_RANKS(TrafficOfCalls, MessagesSendWhatTheFormulasSay) {
  for (const std::int64_t numel : hostile_numels()) {
    SCOPED_TRACE(numel);
    const at::Tensor tensor = at::ones({numel});
    for (int root = 0; root < size_; ++root) {
      expect_sends(broadcast_traffic(numel, 4, size_, rank_, root, comm_.machines()),
                   [&] { return comm_.broadcast(tensor, root); });
    }
    if (size_ == 1) continue;  // no rank to send to
    const at::Tensor received = at::empty({numel});
    const WorkPtr arriving = comm_.recv(received, previous_, 0);
    expect_sends(send_traffic(numel, 4, comm_.machines().are_apart(rank_, next_)),
                 [&] { return comm_.send(tensor, next_, 0); });
    arriving->wait();
  }
}

}  // namespace
}  // namespace ladder
