#include "common/train/dry_run_json.hpp"

#include "common/data/tokenizer_source.hpp"
#include "common/model/build_layers.hpp"
#include "common/train/build_model.hpp"
#include "common/train/memory_need.hpp"

namespace ladder {
namespace {

// Each layer's forward costs so many operations per token; its tensors, padded, are so long.
Json layers_json(const TrainOptions& options) {
  const FlatLayout layout = layout_of(options);
  const std::vector<std::int64_t> flops = layer_costs(options);
  Json layers = Json::array();
  std::size_t next = 0;
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const FlatUnit& unit = layout.units[u];
    Json tensors = Json::array();
    for (; next < layout.tensors.size() && layout.tensors[next].start < unit.start + unit.numel;
         ++next)
      tensors.push_back({layout.tensors[next].numel, layout.tensors[next].padded_numel});
    layers.push_back({{"name", unit.name}, {"flops", flops[u]}, {"tensors", tensors}});
  }
  return layers;
}

Json sends_json(const Traffic& traffic) {
  Json json;
  for (int i = 0; i < kNumCommOps; ++i) {
    const OpTraffic& op = traffic[static_cast<CommOp>(i)];
    if (op.calls > 0)
      json[to_string(static_cast<CommOp>(i))] = {
          {"calls", op.calls}, {"bytes_sent", op.bytes_sent}, {"messages", op.messages}};
  }
  return json;
}

Json stage_json(const TrainOptions& options, const Trainer& trainer, int world_size, int rank) {
  const StateBytes held = trainer.state_bytes(options, world_size, rank);
  const StateBytes peak = trainer.peak_bytes(options, world_size, rank);
  const auto working = trainer.working_bytes(options, world_size, rank);
  // Where steps differ, of all steps of the run together.
  const bool is_every_step = !trainer.largest_traffic(options, world_size, rank);
  const StepsTaken steps =
      is_every_step ? full_step(options) : StepsTaken{.last = options.num_steps};
  return {{"holds",
           {{"parameters", held.parameters},
            {"gradients", held.gradients},
            {"optimizer", held.optimizer},
            {"communication", held.communication}}},
          {"at_most",
           {{"parameters", peak.parameters},
            {"gradients", peak.gradients},
            {"optimizer", peak.optimizer}}},
          {"working", working ? Json(*working) : Json()},
          {"sends", sends_json(trainer.traffic(options, steps, world_size, rank))},
          {"in_steps", steps.count()}};
}

}  // namespace

Json dry_run_json(const TrainOptions& options, const Trainer& trainer, int world_size) {
  check_is_countable(options);
  const int num_stages = trainer.num_stages(options, world_size);
  const std::int64_t rows_each = batch_shape(options).rows_per_sample;
  Json ranks = Json::array();
  for (int stage = 0; stage < num_stages; ++stage)
    ranks.push_back(stage_json(options, trainer, world_size, stage));
  return {{"step", options.step},
          {"world_size", world_size},
          {"stages", num_stages},
          {"parameters", layout_of(options).num_parameters},
          {"vocabulary", options.model.vocab_size},
          {"tokenizer", tokenizer_path(options.data).string()},
          {"microbatches", microbatches_per_step(options)},
          {"tokens",
           rows_each * rows_per_step(options, world_size / num_stages) * options.model.context},
          {"param_bytes", options.model.precision.param_bytes()},
          {"grad_bytes", options.model.precision.grad_bytes()},
          {"layers", layers_json(options)},
          {"ranks", ranks},
          {"schedule", trainer.schedule(options, world_size)},
          {"config", to_json(options)}};
}

}  // namespace ladder
