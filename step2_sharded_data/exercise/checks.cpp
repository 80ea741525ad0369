// Judges who reads what: first on epochs so small that a line shows what is wrong, then by the
// trainer.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "common/comm/self_communicator.hpp"
#include "common/testing/judge_main.hpp"
#include "step0_single_gpu/judge/judge.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step2_sharded_data/train.hpp"

namespace ladder {
namespace step2 {
namespace {

using Samples = std::vector<std::int64_t>;

std::string text_of(const Samples& samples) {
  std::string text;
  for (const std::int64_t sample : samples) text += concat(text.empty() ? "" : ", ", sample);
  return text.empty() ? "nothing" : text;
}

// The definition, without a formula: cut or lengthen what is left until it divides, then deal it
// out one by one.
std::vector<Samples> shares_of(const Samples& order, std::int64_t position, int num_ranks,
                               Tail tail) {
  Samples left(order.begin() + position, order.end());
  const auto num_over = [&] { return left.size() % static_cast<std::size_t>(num_ranks); };
  if (tail == Tail::kDrop) left.resize(left.size() - num_over());
  for (std::size_t i = 0; num_over() != 0; ++i) left.push_back(order[i % order.size()]);
  std::vector<Samples> shares(static_cast<std::size_t>(num_ranks));
  for (std::size_t i = 0; i < left.size(); ++i) shares[i % shares.size()].push_back(left[i]);
  return shares;
}

class Checks : public Examination {
 public:
  using Examination::Examination;

  // Until one is wrong: what it does not show, the next attempt will.
  void small_epochs() {
    for (std::int64_t n = 1; n <= 9; ++n) {
      for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
        for (const Tail tail : {Tail::kDrop, Tail::kPad}) {
          const std::string what = concat(n, " samples, ", num_ranks, " ranks, the tail ",
                                          tail == Tail::kDrop ? "dropped" : "padded");
          if (faults().empty())
            examine(what, [&](Communicator&) { small_epoch(what, n, num_ranks, tail); });
        }
      }
    }
  }

  // An order of so many zeros, of which hardly any is read; memory comes only with the first access.
  void lengths_beyond_float() {
    constexpr std::int64_t kNumSamples = (1 << 24) + 3;  // as a float: one more
    const std::unique_ptr<void, void (*)(void*)> zeros(
        std::calloc(kNumSamples, sizeof(std::int64_t)), &std::free);
    const std::span<const std::int64_t> order(static_cast<const std::int64_t*>(zeros.get()),
                                              kNumSamples);
    constexpr int kNumRanks = (kNumSamples + 1) / 4;
    const std::string what = concat("the number of samples of rank 0 of ", kNumRanks, ", of ",
                                    kNumSamples, " samples, the tail ");
    examine(what, [&](Communicator&) {
      const auto num_read = [&](int num_ranks, Tail tail) {
        return samples_of_rank(order, 0, 0, num_ranks, tail).size();
      };
      expect(what + "dropped,", num_read(kNumRanks, Tail::kDrop), std::size_t{3});
      expect(what + "padded,", num_read(kNumRanks, Tail::kPad), std::size_t{4});
    });
  }

  void refuses(int rank, int num_ranks) {
    const std::string what = concat("samples_of_rank() for rank ", rank, " of ", num_ranks);
    const Samples order = {0, 1, 2, 3};
    for (const Tail tail : {Tail::kDrop, Tail::kPad}) {
      for (const std::int64_t position : {0, 4}) {
        examine(what, [&](Communicator&) {
          expect_error(what, {}, [&] { samples_of_rank(order, position, rank, num_ranks, tail); });
        });
      }
    }
  }

 private:
  // No sample is at its own place in the order. Each shard is asked at all positions.
  void small_epoch(const std::string& what, std::int64_t n, int num_ranks, Tail tail) {
    Samples order = epoch_order(n, 0, 0, SampleOrder::kSequential);
    std::rotate(order.begin(), order.begin() + n / 2, order.end());
    for (int rank = 0; rank < num_ranks; ++rank) {
      const DataShard shard = data_shard(rank, num_ranks, tail);
      expect("the number of readers of a data_shard()", shard.num_readers, num_ranks);
      for (std::int64_t position = 0; position <= n; ++position) {
        const std::string found = text_of(samples_of_rank(order, position, rank, num_ranks, tail));
        const std::string wanted =
            text_of(shares_of(order, position, num_ranks, tail)[static_cast<std::size_t>(rank)]);
        const std::string where =
            concat(what, ", the order ", text_of(order), " of which ", position, " are used up: ");
        if (found != wanted)
          return fault(concat(where, "rank ", rank, " gets ", found, "; not ", wanted));
        expect(concat(where, "the selection of rank ", rank, "'s data_shard()"),
               text_of(shard.select(order, position)), wanted);
      }
    }
  }
};

std::vector<std::string> check() {
  SelfCommunicator alone;  // all ranks are asked on each rank
  Checks checks(alone);
  checks.small_epochs();
  for (const int rank : {-1, 2, 3}) checks.refuses(rank, 2);
  checks.refuses(0, 0);
  if (checks.faults().empty()) checks.lengths_beyond_float();
  return checks.faults();
}

}  // namespace
}  // namespace step2

std::vector<std::string> judge_linked(Communicator& comm) {
  const std::vector<std::string> faults = step2::check();
  if (!faults.empty()) return faults;
  Judge judge({.trainer = step2::trainer(), .sends_in_place = false}, comm);
  judge.all_cases_are_right();
  return judge.faults();
}

}  // namespace ladder
