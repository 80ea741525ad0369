// What each mistake looks like from outside, as a table: in the loss, the gradient norm, the
// parameters and the validation loss, under plain SGD and under clipped AdamW.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "step0_single_gpu/denominators/laboratory.hpp"

namespace ladder::lab {

// One run, compared with the right one of the same recipe.
struct Effect {
  double loss = 0;           // as reported, in the last step
  double distance = 0;       // of the final parameters, relative to how far the right run has moved
  double val_loss = 0;       // after the last step, as reported
  double true_val_loss = 0;  // with one denominator
  double norm_ratio = 0;     // gradient norm of the first step, before clipping
  double clipped_ratio = 0;  // the same after clipping: what the optimizer gets
};

struct EffectRow {
  std::string name;
  Effect sgd, adamw;
};

// A row for the right run, then one for a right run from other initial weights (how much is
// chance?), then one for each mistake. Takes two runs of num_steps for each row.
std::vector<EffectRow> measure_effects(std::int64_t num_steps, std::uint64_t seed);

// The rows as a table in Markdown.
std::string table_of(const std::vector<EffectRow>& rows);

// Returns what differs between the table in `text`, a Markdown file, and `fresh`: a line for each
// number. Another CPU rounds differently, and training amplifies that, so numbers may differ by 0.005
// or 1%, whichever is more.
std::vector<std::string> compare_tables(const std::string& text, const std::string& fresh);

}  // namespace ladder::lab
