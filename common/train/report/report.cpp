#include "common/train/report/report.hpp"

#include <torch/headeronly/version.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <numeric>

#include "common/comm/communicator.hpp"
#include "common/model/attention.hpp"
#include "common/model/family.hpp"

namespace ladder {
namespace {

Json finite(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(finite_or_null(value));
  return list;
}

void add_peaks(const StateBytes& peaks, Json& json) {
  const Json by_category = to_json(peaks);
  for (const auto& [name, bytes] : by_category.items()) json[name + "_peak"] = bytes;
}

Json memory_json(const TrainReport& report, const TrainOptions& options) {
  if (!has_own_ledger(options)) return nullptr;
  const MemoryReading& memory = report.memory;
  // Bytes that stay alive between steps, and that no scope claims.
  const std::int64_t unnamed = memory.live(MemoryCategory::kActivations);
  Json by_name = memory.other_bytes;
  if (unnamed != 0) by_name["unnamed"] = unnamed;
  const auto state_in = [](const BytesByCategory& bytes) {
    const auto of = [&](MemoryCategory c) { return bytes[static_cast<std::size_t>(c)]; };
    return StateBytes{of(MemoryCategory::kParameters), of(MemoryCategory::kGradients),
                      of(MemoryCategory::kOptimizer), of(MemoryCategory::kCommunication)};
  };
  Json json = to_json(state_in(memory.live_bytes));
  json.update({{"other", memory.live(MemoryCategory::kOther) + unnamed},
               {"other_by_name", by_name.is_null() ? Json::object() : by_name}});
  add_peaks(state_in(memory.peak_bytes_by_category), json);
  json.update({{"activations_peak", memory.peak(MemoryCategory::kActivations)},
               {"live_at_step_end", memory.total_live_bytes},
               {"peak", memory.peak_bytes},
               {"save_peak", report.save_peak_bytes},
               {"resident", report.resident.bytes},
               {"resident_peak", report.resident.peak_bytes}});
  return json;
}

// What differs from rank to rank.
Json rank_json(const TrainReport& report, const TrainOptions& options) {
  Json memory_theory = to_json(report.memory_theory);
  add_peaks(report.peak_theory, memory_theory);
  memory_theory.erase("communication_peak");  // it depends on timing
  Json traffic_theory = to_json(report.traffic_theory);
  traffic_theory["bytes_sent"] = report.traffic_theory.bytes_sent();
  const double product_speed = report.product_flops_per_s;
  return {
      {"data_bytes_read", report.data_bytes_read},
      {"data_bytes_theory", report.data_bytes_theory ? Json(*report.data_bytes_theory) : Json()},
      {"differences", report.differences},
      {"product_flops_per_second", product_speed > 0 ? Json(product_speed) : Json()},
      {"memory", memory_json(report, options)},
      {"memory_theory", memory_theory},
      {"traffic", to_json(report.traffic)},
      {"traffic_theory", traffic_theory}};
}

}  // namespace

bool has_own_ledger(const TrainOptions& options) {
  return memory_ledger_is_installed() && options.transport != Transport::kThreads;
}

Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json gather_report(const TrainReport& report, const TrainOptions& options, Communicator& comm) {
  const std::string own = to_text(rank_json(report, options));
  const std::vector<std::string> texts =
      is_simulated(options) ? std::vector{own} : all_gather_text(own, comm);
  if (!writes_for_all(options, comm.rank())) return nullptr;
  const BatchShape batch = batch_shape(options);
  const Json rows =
      batch.has_fixed_size ? Json(rows_per_step(options, report.num_replicas)) : Json();
  const Json attention =  // on the CPU modules.cpp chooses
      options.device.is_cpu() ? Json() : Json(attention_backend(options.model, options.device));
  Json json = {{"schema_version", 1},
               {"step", options.step},
               {"world_size", comm.size()},
               {"transport", to_string(report.transport)},
               {"traffic_is_modelled", report.transport == Transport::kNccl},
               {"data_parallel_size", report.num_replicas},
               {"pipeline_stages", report.num_stages},
               {"tensor_ranks", report.num_tensor_ranks},
               {"global_batch_size", rows},
               {"num_parameters", report.num_parameters},
               {"torch_version", TORCH_VERSION},
               {"own_answers", own_answers()},
               {"attention_backend", attention},
               {"config", to_json(options)},
               {"first_step", report.first_step},
               {"losses", finite(report.losses)},
               {"grad_norms", finite(report.grad_norms)},
               {"param_norms", finite(report.param_norms)},
               {"learning_rates", finite(report.learning_rates)},
               {"unit", batch.mean_over},
               {"units", report.denominators},
               {"val_losses", Json::array()},
               {"skipped_steps", report.skipped_steps},
               {"repeated_steps", report.repeated_steps},
               {"param_hash", report.param_hash},
               {"step_seconds", finite(report.step_seconds)},
               {"units_per_second", report.counted_per_second},
               {"was_stopped", report.was_stopped},
               {"sample", report.sample}};
  if (batch.is_of_tokens()) {
    json["target_tokens"] = report.denominators;
    json["tokens_per_second"] = report.counted_per_second;
  }
  if (is_simulated(options)) {
    json["simulation"] = {{"rank", comm.rank()},
                          {"waiting_seconds", finite(report.simulated_waits_s)},
                          {"bubble", report.bubble}};
  }
  for (const Metrics& metrics : report.metrics) {
    for (const auto& [name, value] : metrics)
      json["metrics"][name].push_back(finite_or_null(value));
  }
  for (const ValidationLoss& loss : report.val_losses) {
    Json entry = {{"step", loss.step}, {"loss", finite_or_null(loss.loss)}};
    if (loss.nats_per_byte) entry["nats_per_byte"] = finite_or_null(*loss.nats_per_byte);
    for (const auto& [name, value] : loss.metrics) entry[name] = finite_or_null(value);
    json["val_losses"].push_back(entry);
  }
  for (const std::string& text : texts) {
    const Json rank = parse_json(text, "a rank's report");
    for (const auto& [key, value] : rank.items()) json[key].push_back(value);
  }
  if (report.product_flops_per_s > 0) {
    const auto flops_per_token = training_flops(options.model);
    const auto speeds = json["product_flops_per_second"].get<std::vector<double>>();
    json["flops_per_token"] = flops_per_token;
    json["product_speed_share"] = report.counted_per_second * static_cast<double>(flops_per_token) /
                                  std::accumulate(speeds.begin(), speeds.end(), 0.0);
  }
  return json;
}

}  // namespace ladder
