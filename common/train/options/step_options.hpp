// The options that a step adds to the common ones, declared where the step is.
//
// A step's options are structs, such as step 4's BucketOptions. Each has defaults, and
//
//   void declare(OptionTable& table)         its rows: names, values, help (option_table.hpp)
//   void finalize(TrainOptions& options)     checks that need several options, and what follows from
//                                            them for rooms that do not know this step (BatchShape)
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

namespace ladder {

class OptionTable;
struct TrainOptions;

class StepOptions {
 public:
  // Adds the struct with its defaults, unless it is there. References stay valid until the next one
  // is added.
  template <class Options>
  Options& add() {
    if (find<Options>() == nullptr) {
      structs_.push_back(
          {Options(),
           [](std::any& own, OptionTable& table) { std::any_cast<Options&>(own).declare(table); },
           [](std::any& own, TrainOptions& options) {
             std::any_cast<Options&>(own).finalize(options);
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

 private:
  struct Struct {
    std::any values;
    void (*declare)(std::any& own, OptionTable& table);
    void (*finalize)(std::any& own, TrainOptions& options);
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
