// Which parts of a layer a process has (parts.hpp says what a part is). A plan needs no tensor: those
// below belong to functions that only layers call.
#pragma once

#include <cstdint>
#include <functional>

namespace at {
class Tensor;
}

namespace ladder {

// Which parts a process computes. No layer knows about ranks: it is given what it lacks.
struct Parts {
  using Wait = std::function<void()>;  // until what was started is done

  int total = 1;
  int first = 0, own = 1;  // of `total`: first … first + own − 1
  // Collective: starts to add up, in place, what this and the other owners of parts hold. Nothing if
  // all parts are this process's own.
  std::function<Wait(const at::Tensor& values)> start_sum = {};
  // Sequence parallelism (rows.cpp), or nothing. Collective: all owners' rows [N/owners, C], one after
  // the other; and starts to write into `own` this owner's rows of the sum of what all hold, [N, C].
  std::function<at::Tensor(const at::Tensor& own)> gather_rows = {};
  std::function<Wait(const at::Tensor& all, const at::Tensor& own)> start_sum_of_rows = {};

  int num_owners() const { return total / own; }
  void sum(const at::Tensor& values) const { start_sum(values)(); }
  // Of so many rows, those that this process has between layers.
  std::int64_t own_rows(std::int64_t all) const { return gather_rows ? all / num_owners() : all; }
};

inline Parts all_parts(int total) {
  return {.total = total, .first = 0, .own = total};
}

// Where part `index` of `numel` things begins; part `total` begins where the last one ends. Parts
// differ by one at most.
inline std::int64_t part_begin(std::int64_t numel, int index, int total) {
  return numel * index / total;
}

// Parts of a vocabulary: which tokens' rows, or logits, a process has.
struct VocabParts : Parts {
  std::int64_t vocab_size = 0;  // of all parts together
  // The first token of part `index`; of part `total`, the end.
  std::int64_t begin(int index) const { return part_begin(vocab_size, index, total); }
};

}  // namespace ladder
