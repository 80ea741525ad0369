// Answers that look right and are not. The grader must reject each of them, for the reason given.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "common/core/check.hpp"
#include "common/testing/wrong_answer.hpp"
#include "step2_sharded_data/exercise/grader.hpp"

namespace ladder::step2 {

using Order = std::span<const std::int64_t>;
using Samples = std::vector<std::int64_t>;

inline std::int64_t num_samples(Order order) {
  return static_cast<std::int64_t>(order.size());
}

inline std::int64_t num_each(std::int64_t num_left, int num_ranks, Tail tail) {
  return (tail == Tail::kDrop ? num_left : num_left + num_ranks - 1) / num_ranks;
}

// The k-th sample of the order repeated without end.
inline std::int64_t repeated(Order order, std::int64_t k) {
  return order[static_cast<std::size_t>(k % num_samples(order))];
}

inline void check_rank(int rank, int num_ranks) {
  check(0 <= rank && rank < num_ranks, "there is no rank ", rank);
}

// `each` samples of every num_ranks-th place; what lies beyond the end comes from `padding`.
template <class Padding>
Samples strided(Order order, std::int64_t position, int rank, int num_ranks, std::int64_t each,
                Padding padding) {
  check_rank(rank, num_ranks);
  Samples samples;
  for (std::int64_t k = 0; k < each; ++k) {
    const std::int64_t place = position + k * num_ranks + rank;
    if (place < num_samples(order)) {
      samples.push_back(order[static_cast<std::size_t>(place)]);
    } else {
      padding(samples, place - num_samples(order));
    }
  }
  return samples;
}

inline Samples right(Order order, std::int64_t position, int rank, int num_ranks, Tail tail) {
  return strided(
      order, position, rank, num_ranks, num_each(num_samples(order) - position, num_ranks, tail),
      [&](Samples& samples, std::int64_t beyond) { samples.push_back(repeated(order, beyond)); });
}

inline Samples contiguous_blocks(Order order, std::int64_t position, int rank, int num_ranks,
                                 Tail tail) {
  check_rank(rank, num_ranks);
  const std::int64_t each = num_each(num_samples(order) - position, num_ranks, tail);
  return strided(
      order, position + rank * each, 0, 1, each,
      [&](Samples& samples, std::int64_t beyond) { samples.push_back(repeated(order, beyond)); });
}

inline Samples wraps_only_once(Order order, std::int64_t position, int rank, int num_ranks,
                               Tail tail) {
  return strided(order, position, rank, num_ranks,
                 num_each(num_samples(order) - position, num_ranks, tail),
                 [&](Samples& samples, std::int64_t beyond) {
                   if (beyond < num_samples(order)) samples.push_back(repeated(order, beyond));
                 });
}

inline Samples leaves_the_tail_to_the_first_ranks(Order order, std::int64_t position, int rank,
                                                  int num_ranks, Tail tail) {
  return strided(order, position, rank, num_ranks,
                 num_each(num_samples(order) - position, num_ranks, Tail::kPad),
                 [&](Samples& samples, std::int64_t beyond) {
                   if (tail == Tail::kPad) samples.push_back(repeated(order, beyond));
                 });
}

inline Samples pads_whatever_it_is_told(Order order, std::int64_t position, int rank, int num_ranks,
                                        Tail /*tail*/) {
  return right(order, position, rank, num_ranks, Tail::kPad);
}

inline Samples ignores_the_position(Order order, std::int64_t /*position*/, int rank, int num_ranks,
                                    Tail tail) {
  return right(order, 0, rank, num_ranks, tail);
}

inline Samples pads_with_its_own(Order order, std::int64_t position, int rank, int num_ranks,
                                 Tail tail) {
  return strided(order, position, rank, num_ranks,
                 num_each(num_samples(order) - position, num_ranks, tail),
                 [&](Samples& samples, std::int64_t /*beyond*/) {
                   samples.push_back(samples.empty() ? order[0] : samples[0]);
                 });
}

inline Samples pads_with_what_is_left(Order order, std::int64_t position, int rank, int num_ranks,
                                      Tail tail) {
  const std::int64_t num_left = num_samples(order) - position;
  return strided(order, position, rank, num_ranks, num_each(num_left, num_ranks, tail),
                 [&](Samples& samples, std::int64_t beyond) {
                   samples.push_back(repeated(order, position + beyond % num_left));
                 });
}

inline Samples gives_places_not_samples(Order order, std::int64_t position, int rank, int num_ranks,
                                        Tail tail) {
  Samples places(order.size());
  std::iota(places.begin(), places.end(), 0);
  return pads_whatever_it_is_told(places, position, rank, num_ranks, tail);
}

inline Samples divides_the_whole_epoch_and_the_position(Order order, std::int64_t position,
                                                        int rank, int num_ranks, Tail tail) {
  const std::int64_t each = num_each(num_samples(order), num_ranks, tail) - position / num_ranks;
  return strided(
      order, position, rank, num_ranks, each,
      [&](Samples& samples, std::int64_t beyond) { samples.push_back(repeated(order, beyond)); });
}

inline Samples takes_a_negative_rank_for_0(Order order, std::int64_t position, int rank,
                                           int num_ranks, Tail tail) {
  return right(order, position, std::max(rank, 0), num_ranks, tail);
}

inline Samples takes_a_rank_too_many_for_the_last(Order order, std::int64_t position, int rank,
                                                  int num_ranks, Tail tail) {
  return right(order, position, std::min(rank, num_ranks - 1), num_ranks, tail);
}

// Has nothing left for who asks a second time.
inline SamplesOfRank deals_once() {
  const auto dealt =
      std::make_shared<std::vector<std::tuple<Samples, std::int64_t, int, int, Tail>>>();
  return [dealt](Order order, std::int64_t position, int rank, int num_ranks, Tail tail) {
    const std::tuple deal(Samples(order.begin(), order.end()), position, rank, num_ranks, tail);
    if (std::count(dealt->begin(), dealt->end(), deal) > 0) return Samples();
    dealt->push_back(deal);
    return right(order, position, rank, num_ranks, tail);
  };
}

inline std::vector<WrongAnswer<SamplesOfRank>> wrong_answers() {
  return {
      {"contiguous blocks", contiguous_blocks, 1,
       "20 samples, over 2 ranks, the tail dropped: rank 0 gets 0, 1, 2, 3, …, 8, 9 (10 samples); "
       "not 0, 2, 4, 6, …, 16, 18 (10 samples)"},
      {"wraps only once", wraps_only_once, 1,
       "repeated more than once: 3, over 8 ranks, the tail padded: rank 0 gets 1 samples and "
       "rank 6 gets 0: one waits for the other forever"},
      {"leaves the tail to the first ranks", leaves_the_tail_to_the_first_ranks, 1,
       "103 samples, over 2 ranks, the tail dropped: rank 0 gets 52 samples and rank 1 gets 51"},
      {"pads whatever it is told", pads_whatever_it_is_told, 1,
       "fewer samples than ranks: 3, over 8 ranks, the tail dropped: rank 0 gets 0; not nothing"},
      {"ignores the position", ignores_the_position, 1,
       "8 are used up, over 3 ranks, the tail dropped: rank 0 gets 0, 3, 6, 9, 12, 15; "
       "not 8, 11, 14, 17"},
      {"pads with its own", pads_with_its_own, 1,
       "103 samples, over 2 ranks, the tail padded: rank 1 gets 1, 3, 5, 7, …, 101, 1 "
       "(52 samples); not 1, 3, 5, 7, …, 101, 0 (52 samples)"},
      {"pads with what is left", pads_with_what_is_left, 1,
       "starts with the first of all 20, over 4 ranks, the tail padded: rank 3 gets 16, 13; "
       "not 16, 0"},
      {"gives places, not samples", gives_places_not_samples, 1,
       "the order 5, 2, 7, 0, 6, 1, 4, 3, over 2 ranks, the tail dropped: rank 0 gets 0, 2, 4, 6; "
       "not 5, 7, 6, 4"},
      {"divides the whole epoch and the position", divides_the_whole_epoch_and_the_position, 1,
       "10 samples of which 3 are used up, over 2 ranks, the tail dropped: rank 0 gets"},
      {"takes a negative rank for 0", takes_a_negative_rank_for_0, 1,
       "rank -1 of 2 is not there: samples_of_rank() says nothing", "rank -1"},
      {"takes a rank too many for the last", takes_a_rank_too_many_for_the_last, 1,
       "rank 2 of 2 is not there: samples_of_rank() says nothing", "rank 2 of 2"},
      {"deals once", deals_once(), 1,
       "20 samples, over 2 ranks, the tail dropped, when asked again: rank 0 gets nothing; not 0",
       "when asked again"},
  };
}

}  // namespace ladder::step2
