#include "common/train/dry_run.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/comm/mesh_shape.hpp"
#include "common/core/amounts.hpp"
#include "common/core/check.hpp"
#include "common/data/tokenizer_source.hpp"
#include "common/model/model_cost.hpp"
#include "common/model/products.hpp"
#include "common/train/cost.hpp"
#include "common/train/layout.hpp"
#include "common/train/memory_need.hpp"
#include "common/train/sends.hpp"
#include "common/train/theory.hpp"

namespace ladder {
namespace {

// What each layer's forward and backward cost, in operations per token.
Json layers_json(const TrainOptions& options) {
  const FlatLayout layout = layout_of(options);
  const std::vector<std::int64_t> forward = forward_flops(options.model),
                                  backward = backward_flops(options.model);
  Json layers = Json::array();
  for (std::size_t u = 0; u < layout.units.size(); ++u)
    layers.push_back({{"name", layout.units[u].name},
                      {"forward_flops", forward[u]},
                      {"backward_flops", backward[u]}});
  return layers;
}

// Bytes that an element's update reads and writes: parameters, gradients, and the optimizer's state.
std::int64_t update_bytes(const TrainOptions& options) {
  const Precision& precision = options.model.precision;
  return 2 * (precision.param_bytes() + precision.grad_bytes() + optimizer_bytes(options, 1));
}

Json stage_json(const TrainOptions& options, const Theory& theory, int world_size, int rank) {
  Json peak = to_json(theory.peak_bytes(options, world_size, rank));
  peak.erase("communication");  // it depends on timing
  const auto working = theory.working_bytes(options, world_size, rank);
  // Where steps differ, of all steps of the run together.
  const bool is_every_step = !theory.largest_traffic(options, world_size, rank);
  const StepsTaken steps =
      is_every_step ? full_step(options) : StepsTaken{.last = options.num_steps};
  const std::vector<Send> plan = theory.sends(options, steps, world_size, rank);
  const Machines machines = machines_of(world_size, options.ranks_per_machine);
  const Json traffic = to_json(traffic_of(plan, rank, machines));
  const OptimizerWork work = theory.optimizer_work(options, world_size, rank);
  Json sends;
  for (const auto& [operation, counts] : traffic.items())
    if (counts["calls"] > 0) sends[operation] = counts;
  return {{"rank", rank},
          {"holds", to_json(theory.state_bytes(options, world_size, rank))},
          {"at_most", peak},
          {"working", working ? Json(*working) : Json()},
          {"sends", sends},
          {"in_steps", steps.count()},
          {"plan", to_json(plan, rank, machines)},
          {"updated", work.updated},
          {"normed", work.normed}};
}

// Model and batch.
std::string describe_step(const TrainOptions& options, const Theory& theory,
                          std::int64_t num_parameters, int world_size) {
  const BatchShape batch = batch_shape(options);
  const MeshShape mesh = theory.mesh(options, world_size);
  const std::int64_t num_replicas = mesh.num_replicas * batch.replicas_per_rank;
  const std::int64_t rows = batch.rows_per_sample * rows_per_step(options, mesh.num_replicas);
  std::string text = concat(options.step, " on ", count_of(world_size, "rank"), "\n");
  text += concat("parameters          ", num_parameters, "\n");
  text += concat("tokens per step     ", batch.has_fixed_size ? "" : "at least ",
                 rows * options.model.context, " (", rows, " rows of ", options.model.context,
                 batch.rows_per_sample > 1 ? ", two per sample" : "", ": ",
                 batch.rows_per_sample * options.data.microbatch_size, " per microbatch, ",
                 count_of(microbatches_per_step(options), "microbatch"), ", ",
                 count_of(num_replicas, "replica"), ")\n");
  if (options.lr.warmup_steps > options.num_steps)
    text += concat("learning rate       rises until the end and never reaches --lr ", options.lr.lr,
                   ": --warmup-steps ", options.lr.warmup_steps, " of --steps ", options.num_steps,
                   "\n");
  if (theory.role == RankRole::kStage)
    text += concat("pipeline            ", count_of(mesh.num_stages, "stage"),
                   mesh.num_tensor_ranks > 1
                       ? concat(" of ", count_of(mesh.num_tensor_ranks, "tensor rank"))
                       : "",
                   ", ", count_of(mesh.num_replicas, "replica"), "\n");
  return text + theory.groups(options, world_size);
}

// What one rank does, in the singular, and the rest of the line: {"holds", "812 bytes"}.
using RankLines = std::vector<std::pair<std::string, std::string>>;

RankLines describe_rank(const TrainOptions& options, const Theory& theory,
                        std::optional<std::int64_t> working, std::int64_t num_parameters,
                        int world_size, int rank) {
  RankLines lines;
  const StateBytes bytes = theory.state_bytes(options, world_size, rank);
  char per_parameter[32];
  std::snprintf(per_parameter, sizeof per_parameter, "%.3f",
                static_cast<double>(bytes.total()) / static_cast<double>(num_parameters));
  lines.emplace_back(
      "holds",
      concat(bytes.total(), " bytes (", format_bytes(bytes.total()), "): parameters ",
             bytes.parameters, ", gradients ", bytes.gradients, ", optimizer ", bytes.optimizer,
             ", communication ", bytes.communication, "; ", per_parameter, " bytes per parameter"));
  if (const StateBytes peak = theory.peak_bytes(options, world_size, rank); peak != bytes) {
    lines.emplace_back("at most",
                       concat("parameters ", peak.parameters, ", gradients ", peak.gradients,
                              ", optimizer ", peak.optimizer, " bytes during a step"));
  }
  if (working)
    lines.emplace_back(
        "needs", concat("at most ", *working, " bytes (", format_bytes(*working),
                        ") more: activations, what backward computes with, token ids, buffers"));
  const std::optional<Traffic> largest = theory.largest_traffic(options, world_size, rank);
  const auto average = [&](std::int64_t num_steps, BatchCounts batches) {
    const StepsTaken steps = {.last = num_steps, .batches = batches};
    return traffic_theory(theory, options, steps, world_size, rank).bytes_sent() / num_steps;
  };
  const std::int64_t sent =
      largest ? largest->bytes_sent() : average(1, full_step(options).batches);
  lines.emplace_back("sends", concat(sent, " bytes (", format_bytes(sent), ") ",
                                     largest ? "in the step that sends most" : "per step"));
  if (!largest || options.num_steps == 0) return lines;
  constexpr std::int64_t kEnough = 1'000'000;  // steps for an average
  const std::int64_t num_steps = std::min(options.num_steps, kEnough);
  const std::int64_t on_average = average(num_steps, {});
  lines.emplace_back(
      "sends", concat(on_average, " bytes (", format_bytes(on_average), ") per step on average",
                      num_steps < options.num_steps ? concat(" of the first ", kEnough) : ""));
  return lines;
}

// "rank 3", "ranks 0 to 998", "ranks 0, 2, 4 … 998 (500 in all)".
std::string in_short(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks[0]);
  const bool is_range = ranks.back() - ranks[0] == static_cast<int>(ranks.size()) - 1;
  if (is_range && ranks.size() > 2) return concat("ranks ", ranks[0], " to ", ranks.back());
  const bool is_long = ranks.size() > 4;
  std::string name = concat("ranks ", ranks[0]);
  for (std::size_t i = 1; i < (is_long ? 3 : ranks.size()); ++i) name += concat(", ", ranks[i]);
  return is_long ? concat(name, " … ", ranks.back(), " (", ranks.size(), " in all)") : name;
}

// "rank 0 holds        812 bytes", "ranks 1 to 998 hold  700 bytes", "rank 0 sends …". Those that hold
// the same share a line, and so do those that send the same. Every rank has as many lines.
std::string describe_ranks(int world_size, const std::function<RankLines(int)>& lines_of) {
  constexpr std::size_t kColumn = 20;
  using Group = std::pair<RankLines::value_type, std::vector<int>>;
  std::vector<std::vector<Group>> groups;  // of each line in turn, by their first ranks
  for (int rank = 0; rank < world_size; ++rank) {
    const RankLines lines = lines_of(rank);
    groups.resize(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto same = std::find_if(groups[i].begin(), groups[i].end(),
                                     [&](const Group& group) { return group.first == lines[i]; });
      if (same == groups[i].end()) {
        groups[i].push_back({lines[i], {rank}});
      } else {
        same->second.push_back(rank);
      }
    }
  }
  std::string text;
  for (const std::vector<Group>& groups_of_line : groups) {
    for (const auto& [line, ranks] : groups_of_line) {
      const auto& [verb, rest] = line;
      const bool drops_s = ranks.size() > 1 && verb.ends_with('s');
      std::string start = concat(in_short(ranks), " ", verb.substr(0, verb.size() - drops_s));
      start.resize(std::max(start.size() + 2, kColumn), ' ');
      text += concat(start, rest, "\n");
    }
  }
  return text;
}

// The library that multiplies, where there is a choice.
std::string describe_products(const TrainOptions& options) {
  const NumberFormat format = options.model.precision.params;
  if (options.device.is_cuda() || (is_16_bit(format) && has_instructions_for(format))) return "";
  return concat("products            ", to_json(options).at("products").get<std::string>(),
                " (this CPU: ", cpu_capability(), ")\n");
}

}  // namespace

std::string describe_start(const TrainOptions& options, const Theory& theory, int world_size,
                           int rank) {
  const auto working = theory.working_bytes(options, world_size, rank);
  return concat(describe_step(options, theory, layout_of(options).num_parameters, world_size),
                describe_products(options), "rank ", rank, " will hold    ",
                format_bytes(theory.peak_bytes(options, world_size, rank).total()),
                " of parameters, gradients and optimizer state",
                working ? concat("\n                    and at most ", format_bytes(*working),
                                 " of activations and buffers")
                        : "",
                "\nwrites to           ", options.output.out);
}

std::string describe_run(const TrainOptions& options, const Theory& theory, int world_size) {
  check_is_countable(options);
  const std::int64_t num_parameters = layout_of(options).num_parameters;
  std::string text = describe_step(options, theory, num_parameters, world_size);
  const MeshShape mesh = theory.mesh(options, world_size);
  std::vector<std::optional<std::int64_t>> working;  // by stage; other replicas need the same
  for (int stage = 0; stage < mesh.num_stages; ++stage)
    working.push_back(theory.working_bytes(options, world_size, mesh.rank_of(stage, 0)));
  if (mesh.num_stages > 1) {
    text += describe_ranks(world_size, [&](int rank) -> RankLines {
      return {{"computes", concat("stage ", mesh.stage_of(rank),
                                  mesh.num_replicas > 1 ? ", and sum its gradients" : "")}};
    });
  }
  text += describe_ranks(world_size, [&](int rank) {
    return describe_rank(options, theory, working[static_cast<std::size_t>(mesh.stage_of(rank))],
                         num_parameters, world_size, rank);
  });
  double saved = 0;
  for (const LayerActivations& layer :
       layer_activations(options, mesh.num_tensor_ranks, mesh.cuts_rows))
    saved += mesh.num_tensor_ranks * layer.saved;
  const auto bytes = static_cast<std::int64_t>(saved);
  return text + concat("Of what comes on top, a microbatch's forward keeps ", bytes, " bytes (",
                       format_bytes(bytes), ") for its backward",
                       mesh.ranks_per_replica() > 1 ? ", on all its ranks together" : "",
                       "; a run reports the peak.\n");
}

Json dry_run_json(const TrainOptions& options, const Theory& theory, int world_size) {
  check_is_countable(options);
  const MeshShape mesh = theory.mesh(options, world_size);
  const std::int64_t rows_each = batch_shape(options).rows_per_sample;
  Json ranks = Json::array();
  for (int stage = 0; stage < mesh.num_stages; ++stage)
    ranks.push_back(stage_json(options, theory, world_size, mesh.rank_of(stage, 0)));
  return {{"step", options.step},
          {"world_size", world_size},
          {"role", to_string(theory.role)},
          {"stages", mesh.num_stages},
          {"tensor_ranks", mesh.num_tensor_ranks},
          {"parameters", layout_of(options).num_parameters},
          {"vocabulary", options.model.vocab_size},
          {"tokenizer", tokenizer_path(options.data).string()},
          {"microbatches", microbatches_per_step(options)},
          {"tokens", rows_each * rows_per_step(options, mesh.num_replicas) * options.model.context},
          {"update_bytes", update_bytes(options)},
          {"norm_bytes", options.model.precision.grad_bytes()},
          {"layers", layers_json(options)},
          {"ranks", ranks},
          {"schedule", theory.schedule(options, world_size)},
          {"config", to_json(options)}};
}

}  // namespace ladder
