#include "common/train/same_start.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "common/comm/launcher_environment.hpp"
#include "common/core/check.hpp"

namespace ladder {
namespace {

struct Difference {
  int rank = 0;
  std::string name;
  std::string value;
  std::string value_on_rank_0;
};

// The first value in which a rank differs from rank 0. Every rank compares the texts of all ranks,
// so all find the same difference.
std::optional<Difference> first_difference(const Json& own, Communicator& comm) {
  const std::vector<std::string> texts = all_gather_text(to_text(own), comm);
  const Json wanted = parse_json(texts[0], "what rank 0 sent");
  const auto value_in = [](const Json& values, const std::string& name) {
    return values.contains(name) ? values[name].dump() : "nothing";
  };
  for (int rank = 1; rank < comm.size(); ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    if (text == texts[0]) continue;
    const Json found = parse_json(text, "what a rank sent");
    for (const Json& values : {wanted, found}) {
      for (const auto& [name, value] : values.items()) {
        const std::string a = value_in(found, name), b = value_in(wanted, name);
        if (a != b) return Difference{rank, name, a, b};
      }
    }
  }
  return std::nullopt;
}

// Nobody told these ranks which library multiplies, and they run on different CPUs.
std::string explain_products(const Difference& of, Communicator& comm) {
  const std::vector<std::string> hosts = all_gather_text(host_name(), comm);
  return concat("rank ", of.rank, " on ", hosts[static_cast<std::size_t>(of.rank)],
                " multiplies matrices with ", of.value, ", rank 0 on ", hosts[0], " with ",
                of.value_on_rank_0,
                ", and the two round differently: start all ranks with --products blas");
}

}  // namespace

void check_same_options(const TrainOptions& options, Communicator& comm) {
  if (const auto step = first_difference({{"step", options.step}}, comm)) {
    throw UsageError(concat("rank ", step->rank, " runs ", step->value, " but rank 0 runs ",
                            step->value_on_rank_0, "; all ranks must run the same step"));
  }
  Json own = to_json(options);
  if (options.device.is_cuda()) own.erase("products");  // of the CPU, which multiplies nothing
  if (const auto option = first_difference(own, comm)) {
    if (option->name == "products") throw UsageError(explain_products(*option, comm));
    throw UsageError(concat("rank ", option->rank, " was started with --", option->name, " ",
                            option->value, ", rank 0 with ", option->value_on_rank_0,
                            "; all ranks must be started with the same options"));
  }
}

void check_same_start(const Run& run, const BatchStream& batches, Communicator& comm) {
  const DataPosition position = batches.position();
  const Dataset& training = batches.training_data();
  const Dataset& validation = batches.validation_data();
  Json own = run.resumed_from();
  own.update({{"epoch", position.epoch},
              {"samples used in the epoch", position.samples},
              {"samples in the training data", training.num_samples()},
              {"tokens in the training data", training.num_tokens()},
              {"samples in the validation data", validation.num_samples()},
              {"hash of the training data", training.source_hash()},
              {"hash of the validation data", validation.source_hash()}});
  const auto difference = first_difference(own, comm);
  if (!difference) return;
  throw CheckError(
      concat(difference->name, ": ", difference->value, " on rank ", difference->rank, ", ",
             difference->value_on_rank_0,
             " on rank 0; all ranks need the same --data, --val-data and checkpoints"));
}

}  // namespace ladder
