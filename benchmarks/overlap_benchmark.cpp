// How steps 4 to 7 and 9 hide communication behind computing, compared with steps 1 and 3.
//
//   mpirun -n 2 --bind-to none build/release/benchmarks/overlap_benchmark [--link 50:1 | --link off]
//
// Prints a table, because its rows are to be compared; overlap_measurement.hpp explains the
// columns. The link is paced, to simulate a network on one machine (see paced_communicator.hpp);
// `off` is MPI at full speed. With --device cuda messages go over NCCL, if each rank has a GPU, or
// through host memory; there is no link then.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/overlap_measurement.hpp"
#include "benchmarks/training_process.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"
#include "common/core/cuda_device.hpp"
#include "common/train/run_main.hpp"

namespace ladder {
namespace {

struct OverlapOptions {
  ModelOptions model{.context = 256, .layers = 6, .heads = 6, .channels = 384};
  std::int64_t rows = 2;
  std::string device = "cpu";
  std::string link;
  int num_rounds = 5;
};

void add_overlap_options(CLI::App& app, OverlapOptions& options) {
  const CLI::Range at_least_1(1, 1 << 30);
  app.add_option("--layers", options.model.layers, "number of blocks");
  app.add_option("--heads", options.model.heads, "attention heads");
  app.add_option("--channels", options.model.channels, "width of the model");
  app.add_option("--context", options.model.context, "tokens per row");
  app.add_option("--micro-batch-size", options.rows, "rows per rank")->check(at_least_1);
  app.add_option("--link", options.link, "LATENCY_US:GBPS, or off; on the CPU 50:1 if not given");
  app.add_option("--rounds", options.num_rounds, "rounds, each of which measures every method once")
      ->check(at_least_1);
  app.add_option("--device", options.device,
                 "cpu, or cuda: in bf16, over NCCL if each rank has a GPU")
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

// Where the model is, and the link that goes with it: NCCL's messages cannot be slowed down.
at::Device place(OverlapOptions& options) {
  if (options.device == "cpu") {
    if (options.link.empty()) options.link = "50:1";
    return at::kCPU;
  }
  check_usage(options.link.empty() || options.link == "off", "--link ", options.link,
              " slows messages of the CPU down: leave it out with --device cuda");
  check_usage(cuda_problem().empty(), "--device cuda: ", cuda_problem());
  options.model.precision.params = at::kBFloat16;
  options.link = "off";
  return at::kCUDA;
}

std::vector<Method> methods() {
  std::vector<Method> list = {reference_method(), naive_method()};
  for (const std::int64_t kib : {64, 256, 1024, 4 * 1024, 25 * 1024}) {
    list.push_back(bucketed_method(kib << 10));
  }
  list.push_back(zero1_method());
  list.push_back(zero2_method());
  for (const int prefetch : {0, 1, 2}) list.push_back(zero3_method(prefetch));
  for (const bool is_polled : {true, false}) list.push_back(diloco_method(is_polled));
  return list;
}

// The speed relative to the other method in the same round; the median over rounds.
double speedup(const OverlapFigures& figures, const OverlapFigures& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < figures.rounds.size(); ++i)
    ratios.push_back(other.rounds[i].step_s / figures.rounds[i].step_s);
  return median(ratios);
}

void print_head(const OverlapOptions& options, const Replica& replica, World& world) {
  const ModelOptions& model = options.model;
  const FlatLayout& layout = replica.flat.layout();
  std::printf("%s\n", concat(model.layers, " layers, ", model.heads, " heads, ", model.channels,
                             " channels, context ", model.context, ", ", options.rows,
                             " rows per rank: ", layout.num_parameters, " parameters\n",
                             world.comm().size(), " ranks of one thread, device ", options.device,
                             ", transport ", to_string(world.transport()), ", link ", options.link,
                             "; medians of ", options.num_rounds, " rounds, times in ms\n")
                          .c_str());
  std::printf("%-28s %11s %9s %9s %9s %9s %9s %7s %10s\n", "", "operations", "T_forward",
              "T_compute", "T_comm", "T_step", "exposed", "overlap", "vs step 1");
  std::fflush(stdout);
}

void print_row(const OverlapFigures& row, const OverlapFigures& baseline) {
  std::printf("%-28s %11lld %9.1f %9.1f %9.1f %9.1f %9.1f %7.2f %8.2f x\n", row.name.c_str(),
              static_cast<long long>(row.num_operations), 1e3 * row.forward_s, 1e3 * row.compute_s,
              1e3 * row.comm_s, 1e3 * row.step_s, 1e3 * row.exposed_s(), row.overlap(),
              speedup(row, baseline));
}

int run(const OverlapOptions& options, at::Device device, World& world) {
  Communicator& comm = world.comm();
  check_usage(comm.size() > 1, "one rank sends nothing; start this program under mpirun -n 2");
  Replica replica(options.model, options.rows, comm, device);
  if (comm.rank() == 0) print_head(options, replica, world);
  const std::vector<OverlapFigures> rows =
      measure_overlap(replica, comm, methods(), options.num_rounds);
  for (const OverlapFigures& row : rows)
    if (comm.rank() == 0) print_row(row, rows.front());
  return 0;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  CLI::App app("Shows how steps 4 to 7 and 9 hide communication, compared with steps 1 and 3.");
  app.option_defaults()->always_capture_default();
  ladder::OverlapOptions options;
  ladder::add_overlap_options(app, options);
  return ladder::run_table(app, argc, argv, [&] {
    ladder::validate(options.model);
    const at::Device device = ladder::place(options);
    const ladder::Link link =
        options.link == "off" ? ladder::Link() : ladder::parse_link(options.link);
    ladder::World world(device.is_cpu() ? ladder::Transport::kMpi : ladder::Transport::kAuto, link,
                        device);
    return ladder::run_in_world(world, [&] { return ladder::run(options, device, world); });
  });
}
