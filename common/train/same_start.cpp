#include "common/train/same_start.hpp"

#include "common/core/check.hpp"
#include "common/train/gather_text.hpp"

namespace ladder {
namespace {

// Rank 0's values, on every rank. Both ways through text, so that equal values read back equal.
Json from_rank_0(const Json& own, Communicator& comm) {
  return parse_json(all_gather_text(to_text(own), comm)[0], "what rank 0 sent");
}

}  // namespace

void check_same_options(const TrainOptions& options, Communicator& comm) {
  Json own = to_json(options);
  own["step"] = options.step;
  own = parse_json(to_text(own), "own options");
  const Json main = from_rank_0(own, comm);
  const auto value_in = [](const Json& values, const std::string& name) {
    return values.contains(name) ? values[name].dump() : "nothing";
  };
  check_usage(main["step"] == own["step"], "this rank runs ", value_in(own, "step"), ", rank 0 ",
              value_in(main, "step"), "; all ranks are started alike");
  for (const Json& values : {main, own}) {
    for (const auto& [name, value] : values.items()) {
      check_usage(value_in(main, name) == value_in(own, name), "this rank was started with --",
                  name, " ", value_in(own, name), ", rank 0 with ", value_in(main, name),
                  "; all ranks are started with the same options");
    }
  }
}

void check_same_start(const Run& run, const BatchStream& batches, Communicator& comm) {
  const DataPosition position = batches.position();
  const Json own = {{"the number of steps taken", run.num_steps_taken()},
                    {"the epoch", position.epoch},
                    {"samples used up of the epoch", position.samples},
                    {"samples in the training data", batches.training_data().num_samples()},
                    {"tokens in the training data", batches.training_data().num_tokens()},
                    {"samples in the validation data", batches.validation_data().num_samples()}};
  const Json main = from_rank_0(own, comm);
  for (const auto& [what, value] : own.items()) {
    check(main[what] == value, what, ": ", value.dump(), " here, ", main[what].dump(),
          " on rank 0; all ranks need the same --data, --val-data and checkpoint");
  }
}

}  // namespace ladder
