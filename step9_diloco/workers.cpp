#include "step9_diloco/workers.hpp"

#include <cstdio>

#include "common/core/check.hpp"
#include "step2_sharded_data/data_shard.hpp"
#include "step9_diloco/make_averager.hpp"
#ifdef LADDER_ELASTIC
#include "step9_diloco/elastic/elastic_averager.hpp"
#endif

namespace ladder {
namespace {

bool is_elastic(const TrainOptions& options) {
  return !options.get<ElasticOptions>().lighthouse.empty();
}

}  // namespace

std::unique_ptr<Averager> find_workers(const TrainOptions& options, Communicator& comm) {
  if (!is_elastic(options)) return make_averager(options.get<DilocoOptions>(), comm);
  check_usage(comm.size() == 1, "--elastic ", options.get<ElasticOptions>().lighthouse,
              ": a worker is a process of its own, but this run has ", comm.size(),
              " ranks; start each worker by itself");
#ifdef LADDER_ELASTIC
  const auto log = [worker = options.get<ElasticOptions>().worker,
                    is_quiet = options.output.is_quiet](const std::string& message) {
    if (!is_quiet) std::fprintf(stderr, "worker %d %s\n", worker, message.c_str());
  };
  return std::make_unique<ElasticAverager>(options.get<ElasticOptions>(), log);
#else
  throw UsageError(
      concat("--elastic ", options.get<ElasticOptions>().lighthouse,
             ": this program was built without ZeroMQ or libsodium (LADDER_ELASTIC is off): "
             "install libzmq3-dev, cppzmq-dev and libsodium-dev, and configure again"));
#endif
}

DataShard worker_shard(const TrainOptions& options, const Communicator& comm) {
  if (!is_elastic(options)) return data_shard(comm.rank(), comm.size(), options.data.tail);
  return data_shard(options.get<ElasticOptions>().worker, options.get<ElasticOptions>().num_workers, options.data.tail);
}

std::string describe_group(const TrainOptions& options) {
  if (!is_elastic(options)) return {};
  const Json all = to_json(options);
  std::string text;
  for (const char* name :
       {"layers", "heads", "channels", "context", "vocab-size", "tie-embeddings", "optimizer",
        "precision", "masters", "rows", "tail", "fragments", "outer-lr", "outer-momentum"}) {
    text += concat(text.empty() ? "" : ", ", "--", name, " ", all.at(name).dump());
  }
  return text;
}

}  // namespace ladder
