// The options that a step adds to the common ones, declared where the step is.
//
// A step's options are structs, such as step 4's BucketOptions. Each has defaults, and, if it needs them,
//
//   void declare(OptionTable& table)           its rows: names, values, help (option_table.hpp)
//   void finalize(TrainOptions& options)       checks that need several options, and what follows
//   void shape_batch(BatchShape& batch) const  what they mean for rooms that do not know this step
//
// The struct is read with options.get<BucketOptions>(), and changed with
// options.set<BucketOptions>().
#pragma once

#include <any>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "common/core/check.hpp"
#include "common/data/options.hpp"

namespace ladder {

class OptionTable;
struct TrainOptions;

// What a step's own options mean for rooms that do not know them: memory, report, --dry-run.
struct BatchShape {
  Rows rows = Rows::kWindows;             // what the data are read as; by default as --rows says
  std::int64_t rows_per_sample = 1;       // that a sample becomes in a microbatch
  std::int64_t flushes_per_step = 1;      // of --num-microbatches each
  std::int64_t replicas_per_rank = 1;     // that one process plays
  int ranks_per_replica = 1;              // ranks that run a microbatch together; 0: all
  std::int64_t num_data_parts = 1;        // of which this run has one: other runs share the data
  std::string multiplied = {};            // ", --accumulation 4": for messages about a step's size
  bool has_fixed_size = true;             // false: each step decides how many microbatches it has
  std::string mean_over = kTargetTokens;  // what the loss's denominator counts

  static constexpr const char* kTargetTokens = "target tokens";
  bool is_of_tokens() const { return mean_over == kTargetTokens; }
};

class StepOptions {
 public:
  // Adds the struct with its defaults, unless it is there. References stay valid until the next one
  // is added.
  template <class Options>
  Options& add() {
    if (find<Options>() == nullptr) {
      structs_.push_back(
          {Options(),
           [](std::any& own, OptionTable& table) {
             if constexpr (requires(Options & given) { given.declare(table); })
               std::any_cast<Options&>(own).declare(table);
           },
           [](std::any& own, TrainOptions& options) {
             if constexpr (requires(Options & given) { given.finalize(options); })
               std::any_cast<Options&>(own).finalize(options);
           },
           [](const std::any& own, BatchShape& batch) {
             if constexpr (requires(const Options& given) { given.shape_batch(batch); })
               std::any_cast<const Options&>(own).shape_batch(batch);
           }});
    }
    return *find<Options>();
  }
  // Null: the step does not have these options.
  template <class Options>
  const Options* find() const {
    for (const Struct& each : structs_)
      if (const auto* found = std::any_cast<Options>(&each.values)) return found;
    return nullptr;
  }
  template <class Options>
  Options* find() {
    return const_cast<Options*>(std::as_const(*this).find<Options>());
  }

  // Drops what is not in `wanted`, and adds what is missing here.
  void keep_only(const StepOptions& wanted);
  void declare(OptionTable& table);
  void finalize(TrainOptions& options);
  void shape_batch(BatchShape& batch) const;

 private:
  struct Struct {
    std::any values;
    void (*declare)(std::any& own, OptionTable& table);
    void (*finalize)(std::any& own, TrainOptions& options);
    void (*shape_batch)(const std::any& own, BatchShape& batch);
  };
  std::vector<Struct> structs_;
};

// The options of a step that has these structs, with their defaults.
template <class... Options>
StepOptions step_options() {
  StepOptions own;
  (own.add<Options>(), ...);
  return own;
}

}  // namespace ladder
