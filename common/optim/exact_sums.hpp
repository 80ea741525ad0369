// Gradients whose sum is the same in any order, on any number of ranks: each microbatch's gradient is
// rounded to multiples of its blocks' quanta (quanta.hpp) before anybody adds it to anything. What
// adds it up, on how many ranks, over which links, does not matter.
//
// A block is one of the norm's, 1024 elements. Its quantum follows from the norm of the same block of
// the last step's summed gradient, which every rank has computed from the same numbers. Where the
// sum is infinite, a summand was beyond its share of the range: all ranks see that in the norm, and
// no message tells them. The quanta of these blocks grow, and the step is computed again. Each
// summand is judged by itself, so nothing of this depends on the number of ranks. At first nothing
// is known: the quanta begin at 2⁻⁴⁰ and grow until the step succeeds, which is then computed once
// more.
//
// A gradient that has become much smaller loses its digits, and in the end is rounded to zero. The sum
// shows that too: if a unit's quanta were more than 2⁸ times what its sum asks for, or all of its sum
// is zero, the step is computed again with the quanta of the sum, or with the smallest that there
// are, which find whether anything was lost. A unit that is zero after all gets its quanta back. What
// has grown in this step does not shrink in it, so that each step ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/core/unit.hpp"
#include "common/optim/flat_layout.hpp"
#include "common/optim/options.hpp"
#include "common/optim/quanta.hpp"

namespace ladder {

// The quanta of a whole model, for gradients without a loss scale: so another precision, or another
// scale, can go on with them. Memory: 4 bytes per block, and as much again under a scale, counted as
// other, "quanta".
class ExactSums {
 public:
  // Sums have at most so many microbatches, on all ranks together. 0: off; sums are ordered.
  explicit ExactSums(std::int64_t num_microbatches = 0) : num_microbatches_(num_microbatches) {}
  ~ExactSums();  // removes the hooks
  ExactSums(const ExactSums&) = delete;
  ExactSums& operator=(const ExactSums&) = delete;

  // Turns the sums on, for this model, whole even if this rank has only a part of it. A hook on each
  // of this rank's leaves, which have the names of `whole`, rounds its gradients as they come out of
  // backward, before autograd adds them to .grad. A weight that two layers use is rounded at each use
  // (project() in modules.hpp).
  void cover(const FlatLayout& whole, const std::vector<NamedTensor>& leaves = {});
  bool is_on() const { return quanta_.defined(); }

  // Summands are so many times as large as the gradient from here on: fp16's loss scale, a power of
  // two.
  void set_scale(double scale);

  // Rounds a summand of this tensor's gradient, in fp32, bf16 or fp16. Returns it, or a copy if
  // somebody else has it as well.
  at::Tensor round(const std::string& tensor, const at::Tensor& summand) const;

  // Once per step: the block sums of the summed gradient's norm. Returns false if the step must be
  // computed again, with the quanta that are now set. CheckError for another number of sums.
  bool learn(const std::vector<double>& block_sums);

  // The quanta of each unit [blocks], as views, to save and to read from a checkpoint.
  std::vector<NamedTensor> quanta_by_unit() const;
  bool is_known() const { return is_known_; }  // a step has been learned from
  void set_known();                            // the views have been read from a checkpoint

 private:
  struct UnitBlocks {
    std::string name;
    std::int64_t first = 0, count = 0;  // among the quanta: those that have a tensor
    std::int64_t num_sums = 0;          // in this layout, with the blocks of its padding
    bool has_grown = false;             // a quantum of it, in this step
    std::vector<float> kept;            // its quanta, while the smallest are tried
  };
  struct Place {
    std::int64_t block = 0, offset = 0;  // where a tensor begins
  };
  // After a finite sum: makes the unit's quanta finer if those that it was rounded to were too coarse.
  // Returns whether they were.
  static bool shrink(UnitBlocks& unit, const UnitQuanta& learned,
                     std::span<const float> rounded_to);
  void update_scaled();

  std::int64_t num_microbatches_;
  std::vector<UnitBlocks> units_;
  std::map<std::string, Place> places_;  // of the tensors
  at::Tensor quanta_;                    // [blocks] fp32, on the CPU
  at::Tensor scaled_;                    // the same times the scale, where gradients are
  double scale_ = 1;
  bool is_known_ = false;
  std::vector<std::pair<at::Tensor, unsigned>> hooked_;  // leaves, with the number of the hook
};

}  // namespace ladder
