// Judges who reads what: first on epochs so small that a line shows what is wrong, then by the
// trainer.
#include <sys/mman.h>

#include <algorithm>
#include <span>

#include "common/comm/self_communicator.hpp"
#include "common/testing/draw.hpp"
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

const char* to_string(Tail tail) {
  return tail == Tail::kDrop ? "dropped" : "padded";
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

// An order of zeros, of which hardly any is read: it takes memory only where somebody writes. To
// read far outside of it gives zeros, too, not a crash.
class LongOrder {
 public:
  explicit LongOrder(std::int64_t num_samples)
      : num_samples_(num_samples),
        memory_(::mmap(nullptr, num_bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    check(memory_ != MAP_FAILED, "no addresses for an order of ", num_samples, " samples");
    ::madvise(memory_, num_bytes(), MADV_NOHUGEPAGE);
  }
  ~LongOrder() { ::munmap(memory_, num_bytes()); }
  LongOrder(const LongOrder&) = delete;
  LongOrder& operator=(const LongOrder&) = delete;

  std::span<const std::int64_t> span() const {
    return {begin(), static_cast<std::size_t>(num_samples_)};
  }
  void set(std::int64_t place) const { begin()[place] = place; }  // the sample at this place

 private:
  static constexpr std::int64_t kMargin = std::int64_t{1} << 33;

  std::size_t num_bytes() const {
    return static_cast<std::size_t>(num_samples_ + 2 * kMargin) * sizeof(std::int64_t);
  }
  std::int64_t* begin() const { return static_cast<std::int64_t*>(memory_) + kMargin; }

  std::int64_t num_samples_;
  void* memory_;
};

class Checks : public Examination {
 public:
  using Examination::Examination;

  // Tries shapes until one is wrong: what it does not show, the next attempt will.
  void small_epochs() {
    for (std::int64_t n = 1; n <= 9; ++n) {
      for (int num_ranks = 1; num_ranks <= 5; ++num_ranks) {
        for (const Tail tail : {Tail::kDrop, Tail::kPad}) one_epoch(n, num_ranks, tail);
      }
    }
  }
  void larger_epochs(Draw& draw) {
    const std::int64_t n = draw.number(10, 60);
    const int num_ranks = static_cast<int>(draw.number(6, 20));
    const std::string what = draw.announce(concat(n, " samples, ", num_ranks, " ranks"));
    for (const Tail tail : {Tail::kDrop, Tail::kPad}) one_epoch(n, num_ranks, tail, what);
    for (const Tail tail : {Tail::kDrop, Tail::kPad}) one_epoch(97, 8, tail);
  }

  void lengths_beyond_float() {
    constexpr std::int64_t kNumSamples = (1 << 24) + 3;  // as a float: one more
    const LongOrder order(kNumSamples);
    constexpr int kNumRanks = (kNumSamples + 1) / 4;
    const std::string what = concat("the number of samples of rank 0 of ", kNumRanks, ", of ",
                                    kNumSamples, " samples, the tail ");
    examine(what, [&](Communicator&) {
      const auto num_read = [&](int num_ranks, Tail tail) {
        return samples_of_rank(order.span(), 0, 0, num_ranks, tail).size();
      };
      expect(what + "dropped,", num_read(kNumRanks, Tail::kDrop), std::size_t{3});
      expect(what + "padded,", num_read(kNumRanks, Tail::kPad), std::size_t{4});
    });
  }

  // Neither 2^31 nor 2^32 is enough for a place in this order.
  void places_beyond_32_bits() {
    constexpr std::int64_t kNumSamples = 5'000'000'000;
    constexpr int kNumRanks = 1 << 20, kRank = kNumRanks - 3;
    const LongOrder order(kNumSamples);
    for (const auto& [position, tail] : {std::pair{std::int64_t{0}, Tail::kDrop},
                                         {std::int64_t{0}, Tail::kPad},
                                         {kNumSamples - 5 * kNumRanks + 7, Tail::kDrop},
                                         {kNumSamples - 5 * kNumRanks + 7, Tail::kPad}}) {
      const std::string what =
          concat("rank ", kRank, " of ", kNumRanks, ", of ", kNumSamples, " samples of which ",
                 position, " are used up, the tail ", to_string(tail), ": ");
      examine(what, [&, from = position, tail_ = tail](Communicator&) {
        const std::int64_t num_left =
            kNumSamples - from + (tail_ == Tail::kPad ? kNumRanks - 1 : 0);
        const std::int64_t num_wanted = num_left / kNumRanks;
        const auto place_of = [&](std::int64_t k) {
          return (from + k * kNumRanks + kRank) % kNumSamples;
        };
        for (std::int64_t k = 0; k < num_wanted; ++k) order.set(place_of(k));
        const Samples found = samples_of_rank(order.span(), from, kRank, kNumRanks, tail_);
        expect(what + "the number of samples", static_cast<std::int64_t>(found.size()), num_wanted);
        for (std::int64_t k = 0; k < std::min<std::int64_t>(num_wanted, std::ssize(found)); ++k) {
          if (found[static_cast<std::size_t>(k)] == place_of(k)) continue;
          return fault(concat(what, "sample ", k, " of the rank is not that at place ", place_of(k),
                              " of the order: has each number of samples 64 bits?"));
        }
      });
    }
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
  void one_epoch(std::int64_t n, int num_ranks, Tail tail, const std::string& drawn = "") {
    const std::string what =
        concat(drawn.empty() ? concat(n, " samples, ", num_ranks, " ranks") : drawn, ", the tail ",
               to_string(tail));
    examine_next(what, [&](Communicator&) { small_epoch(what, n, num_ranks, tail); });
  }

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

std::vector<std::string> check(Communicator& comm) {
  Draw draw(comm);
  SelfCommunicator alone;  // all ranks are asked on each rank
  Checks checks(alone);
  checks.small_epochs();
  checks.larger_epochs(draw);
  for (const int rank : {-1, 2, 3}) checks.refuses(rank, 2);
  checks.refuses(0, 0);
  if (checks.faults().empty()) {
    checks.lengths_beyond_float();
    checks.places_beyond_32_bits();
  }
  return checks.faults();
}

}  // namespace
}  // namespace step2

std::vector<std::string> judge_linked(Communicator& comm) {
  const std::vector<std::string> faults = step2::check(comm);
  if (!faults.empty()) return faults;
  Judge judge({.trainer = step2::trainer(), .sends_in_place = false}, comm);
  judge.all_cases_are_right();
  return judge.faults();
}

}  // namespace ladder
