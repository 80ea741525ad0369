#include "step9_diloco/elastic/worker.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/check.hpp"
#include "step9_diloco/diloco_options.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"

namespace ladder {

Log worker_log(const TrainOptions& options) {
  return [worker = options.get<ElasticOptions>().worker,
          is_quiet = options.output.is_quiet](const std::string& message) {
    if (!is_quiet) std::fprintf(stderr, "worker %d %s\n", worker, message.c_str());
  };
}

DataShard worker_shard(const TrainOptions& options) {
  const auto& elastic = options.get<ElasticOptions>();
  return data_shard(elastic.worker, elastic.num_workers, options.data.tail);
}

std::string describe_group(const TrainOptions& options) {
  const Json all = to_json(options);
  Json shared = model_to_json(options);
  for (const char* name : {"optimizer", "precision", "masters", "rows", "tail", "fragments",
                           "outer-lr", "outer-momentum"})
    shared[name] = all.at(name);
  std::string text;
  for (const auto& [name, value] : shared.items())
    text += concat(text.empty() ? "" : ", ", "--", name, " ", value.dump());
  return text;
}

void start_round(Diloco& diloco, ElasticAverager& workers) {
  if (!diloco.is_started() && workers.form_quorum()) diloco.start_average();
}

bool finish_round(Diloco& diloco, const ElasticAverager& workers) {
  diloco.settle();
  return diloco.is_started() && !workers.has_given_up() && diloco.finish_round();
}

TrainState with_last_quorum(TrainState state, ElasticAverager& workers) {
  const QuorumNumber& last = workers.last_quorum();
  state.extra_counts["lighthouse_epoch"] = static_cast<std::int64_t>(last.lighthouse_epoch);
  state.extra_counts["quorum"] = last.id;
  state.history = {static_cast<std::int64_t>(last.lighthouse_epoch), last.id};
  state.restore = [&workers, restore = std::move(state.restore)](const TrainState& loaded) {
    restore(loaded);
    const auto& counts = loaded.extra_counts;
    if (!loaded.has_extras || !counts.contains("quorum")) return;
    workers.restore(
        {static_cast<std::uint64_t>(counts.at("lighthouse_epoch")), counts.at("quorum")});
  };
  return state;
}

WorkerState worker_state(Diloco& diloco, const FlatModel& local, const FlatModel& global,
                         Optimizer& inner, Run& run, const TrainOptions& options) {
  WorkerState state = {.shared = {{"global", global.params()}, {"momentum", diloco.velocity()}},
                       .own = {{"parameters", local.params()}}};
  for (const NamedTensor& moments : inner.state()) state.own.push_back(moments);
  // An average from a checkpoint is a step that was committed.
  state.outer_steps = [&diloco] {
    const Diloco::Round round = diloco.round();
    return round.outer_steps + (round.pseudogradient.defined() ? 1 : 0);
  };
  const std::int64_t length = steps_per_round(options.get<DilocoOptions>());
  const std::int64_t last_round = options.num_steps / length - 1;
  state.counters = [&diloco, &inner, &run, length]() -> std::vector<std::int64_t> {
    return {diloco.round().outer_steps, inner.num_steps(), run.num_steps_taken() / length};
  };
  state.set_counters = [&diloco, &inner, &run, length,
                        last_round](const std::vector<std::int64_t>& counters) {
    diloco.restore({counters[0], {}});
    inner.set_num_steps(counters[1]);
    const std::int64_t round = std::min(counters[2], last_round);
    run.continue_from(round * length + run.num_steps_taken() % length);
  };
  return state;
}

}  // namespace ladder
