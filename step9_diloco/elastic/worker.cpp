#include "step9_diloco/elastic/worker.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/core/check.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/options/option_table.hpp"
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

GroupSettings group_settings(const TrainOptions& options, const BatchStream& batches) {
  std::set<std::string> free = options_that_change_no_bits(options);
  free.insert({"worker"});
  free.insert({"threads", "products", "device", "deterministic", "reduction"});  // the machine's
  free.insert({"sync-every", "sync-delay", "steps"});                            // how fast it is
  free.insert({"data", "tokenizer"});                                            // paths
  GroupSettings settings;
  const Json all = to_json(options);
  for (const auto& [name, value] : all.items())
    if (!free.contains(name)) settings["--" + name] = to_text(value);
  settings["--data, as a hash of its contents,"] = batches.training_data().source_hash();
  return settings;
}

void start_round(Diloco& diloco, ElasticAverager& workers) {
  if (!diloco.is_started() && workers.form_quorum()) diloco.start_average();
}

bool finish_round(Diloco& diloco, const ElasticAverager& workers) {
  diloco.settle();
  return diloco.is_started() && !workers.has_given_up() && diloco.finish_round();
}

TrainState with_last_quorum(TrainState state, ElasticAverager& workers) {
  const auto& [run, last] = workers.history();
  state.extra_counts["run"] = static_cast<std::int64_t>(run);
  state.extra_counts["lighthouse_epoch"] = static_cast<std::int64_t>(last.lighthouse_epoch);
  state.extra_counts["quorum"] = last.id;
  state.history = {static_cast<std::int64_t>(last.lighthouse_epoch), last.id};
  state.restore = [&workers, restore = std::move(state.restore)](const LoadedCheckpoint& loaded) {
    restore(loaded);
    if (!loaded.has_read_extras) return;
    const auto count = [&](const char* name) {
      const auto found = loaded.extra_counts.find(name);
      return found == loaded.extra_counts.end() ? 0 : found->second;
    };
    workers.restore({static_cast<std::uint64_t>(count("run")),
                     {static_cast<std::uint64_t>(count("lighthouse_epoch")), count("quorum")}});
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
