#include "common/train/run_main.hpp"

#include <ATen/ops/linspace.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "common/comm/checking/checking_communicator.hpp"
#include "common/comm/launcher_environment.hpp"
#include "common/comm/messages/message_communicator.hpp"
#include "common/comm/paced_communicator.hpp"
#include "common/comm/simulated/simulated_communicator.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/core/cuda_device.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/process_memory.hpp"
#include "common/core/stop_signal.hpp"
#include "common/core/timer.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/modules.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/command_line.hpp"
#include "common/train/differences.hpp"
#include "common/train/dry_run.hpp"
#include "common/train/generate.hpp"
#include "common/train/memory_need.hpp"
#include "common/train/report/console.hpp"
#include "common/train/report/report.hpp"
#include "common/train/run.hpp"
#include "common/train/same_start.hpp"
#include "common/train/start.hpp"
#include "common/train/trace_file.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// runs/STEP-DATE-TIME, with a number appended if that is taken.
fs::path fresh_run_folder(const std::string& step) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const fs::path base = fs::path("runs") / concat(step, "-", stamp);
  make_folders("runs");
  fs::path folder = base;
  for (int number = 2; !fs::create_directory(folder); ++number)
    folder = concat(base.string(), "-", number);
  sync_to_disk("runs");
  return folder;
}

int exit_code_of(const std::exception& error) {
  return dynamic_cast<const UsageError*>(&error) != nullptr ? kExitUsage : kExitError;
}

// Prints the error with its rank, and returns the matching exit code. Most errors occur on all
// ranks: the first of them reports them, and gets time to end the others before they report them too.
int report_error(const std::exception& error, int rank, int num_ranks) {
  if (rank > 0) {
    std::signal(SIGTERM, SIG_DFL);  // nothing is left to save
    std::this_thread::sleep_for(std::chrono::milliseconds(3000 + 300 * std::min(rank - 1, 16)));
  }
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);  // what() has a stack trace
  const char* message = from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  const std::string who = concat("rank ", rank);
  const bool says_who = std::string_view(message).starts_with(who);
  const std::string prefix = num_ranks > 1 && !says_who ? who + ": " : "";
  std::fprintf(stderr, "%serror: %s\n", prefix.c_str(), message);
  std::fflush(stderr);
  return exit_code_of(error);
}

// The folder that the run writes to: made if none is named, locked until everything is written, and
// removed again if the run leaves nothing in it.
class RunFolder {
 public:
  RunFolder(TrainOptions& options, bool is_main) {
    if (!is_main) return;
    std::string& out = options.output.out;
    if (out.empty()) out = made_ = fresh_run_folder(options.step);
    lock_.emplace(out, "--out " + out);
  }
  ~RunFolder() {
    std::error_code not_empty;
    lock_.reset();
    if (!made_.empty()) fs::remove(made_, not_empty);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  fs::path made_;
  std::optional<FolderLock> lock_;
};

// Floating-point operations per second of this rank's matrix products: in the run's precision, by its
// library, and of a size at which they are fast. Other programs can only make products slower, so
// of several samples the fastest counts. Collective: all ranks multiply at once, so what they share
// is counted, and the sample that counts is the fastest of all ranks together.
double measure_products(const TrainOptions& options, Communicator& comm) {
  constexpr std::size_t kSamples = 8;
  constexpr double kSeconds = 0.02;  // of a sample
  const Span span("measure products");
  const at::Device device = to_torch(options.device);
  const std::int64_t size = device.is_cpu() ? 512 : 4096;
  const std::int64_t rows = device.is_cpu() ? size * options.num_threads : size;
  set_memory_cap(0);
  const at::NoGradGuard no_gradients;
  const at::Tensor x = at::linspace(-1, 1, rows * size, device)
                           .to(to_torch(options.model.precision.params))
                           .view({rows, size});
  const auto multiply = [&] {
    project(x, x.slice(0, 0, size), options.model.products);
    wait_for(device);
  };
  multiply();  // the first one prepares
  std::array<double, kSamples> own = {};
  for (double& sample : own) {
    comm.barrier();
    const Timer timer;
    double flops = 0;
    for (; timer.seconds() < kSeconds; flops += 2.0 * static_cast<double>(rows * size * size))
      multiply();
    sample = flops / timer.seconds();
  }
  std::array<double, kSamples> of_all = own;
  all_reduce_sum(of_all, comm);
  return own[static_cast<std::size_t>(std::ranges::max_element(of_all) - of_all.begin())];
}

std::string percent_text(double percent) {
  return concat(percent < 10 ? std::round(10 * percent) / 10 : std::round(percent));
}

// How far apart the steps are: the shares in which the slower and the faster quarter of them begin.
// Nothing if there are too few.
std::string spread_text(double percent, double mean_s, std::vector<double> step_s) {
  if (step_s.size() < 4) return "";
  std::ranges::sort(step_s);
  const double slow_s = step_s[step_s.size() * 3 / 4], fast_s = step_s[step_s.size() / 4];
  return concat(" (half of the steps: ", percent_text(percent * mean_s / slow_s), " to ",
                percent_text(percent * mean_s / fast_s), "%)");
}

// Time, speed and this rank's memory. The mean leaves the first step out, which warms up.
std::string describe_end(const TrainReport& report, const TrainOptions& options, const Json& json,
                         double total_s, std::optional<std::int64_t> working) {
  const auto num_steps = std::ssize(report.step_seconds);
  const auto warm = report.step_seconds.begin() + (num_steps > 1 ? 1 : 0);
  const double ms = 1e3 * std::accumulate(warm, report.step_seconds.end(), 0.0) /
                    static_cast<double>(report.step_seconds.end() - warm);
  std::string text =
      concat(count_of(num_steps, "step"), " in ", format_duration(total_s), ": ",
             std::llround(report.counted_per_second), " ", batch_shape(options).mean_over, "/s, ",
             std::round(10 * ms) / 10, " ms per step");
  if (json.contains("product_speed_share")) {
    const double percent = 100 * json["product_speed_share"].get<double>();
    text += concat(", ", percent_text(percent), "% of this machine's product speed",
                   spread_text(percent, ms / 1e3, {warm, report.step_seconds.end()}));
  }
  if (has_own_ledger(options)) {
    text += concat("\npeak memory ", format_bytes(report.memory.peak_bytes));
    if (working)
      text += concat("; theory: at most ", format_bytes(report.peak_theory.total() + *working));
  }
  return text;
}

void announce(const TrainOptions& options, Console& console) {
  if (!own_answers().empty())
    console.line("answers to these exercises replace the solutions: " + own_answers());
  if (is_simulated(options)) {
    console.line(concat("simulated: rank ", options.simulated_rank, " of ", options.num_ranks,
                        "; theory answers for the others. What it sends, holds and waits\n"
                        "for is that of a real run; what it learns is not"));
  }
}

// Writes the trace, of all ranks or of this one, and says so. That comes last: what it costs, or a
// disk that is full, must not cost what the run was for. False if it cannot be written.
bool keep_trace(TraceFile& trace, bool is_of_all, const Communicator& comm, Console& console) {
  try {
    const std::string line = is_of_all ? trace.write() : trace.write_own();
    if (!line.empty()) console.line(line);
    return true;
  } catch (const std::exception& error) {
    report_error(error, comm.rank(), comm.size());
    return false;
  }
}

// A run that fails leaves its trace, which may show why.
TrainReport train(const TrainOptions& options, const Trainer& trainer, Communicator& comm,
                  TraceFile& trace, Console& console) {
  try {
    return trainer.train(options, comm);
  } catch (const std::exception& error) {
    const bool is_on_all = dynamic_cast<const Diverged*>(&error) != nullptr;
    keep_trace(trace, is_on_all, comm, console);
    throw;
  }
}

// Writes OUT/report.json; says so.
void keep_report(const TrainOptions& options, const TrainReport& report, const Json& json,
                 Console& console) {
  const fs::path path = fs::path(options.output.out) / "report.json";
  // If all steps had been taken before, the report of those steps stays. One that was lost is not
  // made up.
  const bool has_nothing_new = report.losses.empty() && (report.first_step > 0 || fs::exists(path));
  if (!has_nothing_new) write_text_file(path, to_text(json, 1) + "\n");
  if (!report.sample.empty()) {
    const char* answers = options.data.rows == Rows::kChat ? "\n" : "";
    console.line(concat("sample:\n", options.output.sample, answers, report.sample));
  }
  console.line(concat("report: ", path.string(),
                      !has_nothing_new   ? ""
                      : fs::exists(path) ? ", unchanged: no step was left to take"
                                         : " is missing, and no step was left to take"));
}

// `log`: this rank's, if the run is traced.
int train_and_report(TrainOptions options, const Trainer& trainer, World& world, TraceLog& log) {
  set_memory_cap(memory_cap_bytes(options));  // on a GPU, the one that the World has chosen
  TraceFile trace(options, world, log);
  Communicator& comm = world.comm();
  const bool is_main = writes_for_all(options, comm.rank());
  Console console(is_main && !options.output.is_quiet);
  if (!options.output.sample.empty()) check_can_generate(options);
  const RunFolder folder(options, is_main);
  announce(options, console);
  if (is_main && !options.output.is_quiet)
    console.line(describe_start(options, trainer, comm.size(), comm.rank()));
  const Timer timer;
  TrainReport report = train(options, trainer, comm, trace, console);
  const double total_s = timer.seconds();
  report.transport = world.transport();
  add_theory(report, options, trainer, comm.size(), comm.rank(), comm.machines());
  const bool is_measured = batch_shape(options).is_of_tokens() && !is_simulated(options) &&
                           !report.step_seconds.empty() && !report.was_stopped;
  if (is_measured) report.product_flops_per_s = measure_products(options, comm);
  const Json json = gather_report(report, options, comm);
  if (is_main) keep_report(options, report, json, console);
  if (!report.step_seconds.empty())
    console.line(describe_end(report, options, json, total_s,
                              trainer.working_bytes(options, comm.size(), comm.rank())));
  const bool is_traced = keep_trace(trace, /*is_of_all=*/true, comm, console);
  return report.was_stopped ? kExitStopped : is_traced ? kExitDone : kExitError;
}

int check_and_train(const TrainOptions& options, const Trainer& trainer, World& world,
                    TraceLog& log) {
  check_same_options(options, world.comm());  // --check-collectives itself, too
  const bool is_default = options.check_collectives_s == 0;
  const double timeout_s = is_default && world.transport() == Transport::kThreads
                               ? std::numeric_limits<double>::infinity()
                               : options.check_collectives_s;
  return check_collectives(world, timeout_s,
                           [&] { return train_and_report(options, trainer, world, log); });
}

// A command line that is wrong on only one rank must end the others too, which wait for that rank
// in the World's constructor.
CommandLine parse_or_abort(int argc, char** argv, const Trainer& trainer, int rank, int num_ranks) {
  try {
    CommandLine line = parse_command_line(argc, argv, trainer);
    finalize(line);
    check_usage(line.options.num_ranks == 0 || num_ranks == 1, "--transport ",
                to_string(line.options.transport),
                " starts the ranks itself, but the launcher started ", num_ranks,
                " processes; start one, or use --transport mpi");
    if (!line.is_question()) {
      const Ranks ranks = ranks_here(line.options);
      const int processes = line.options.transport == Transport::kThreads ? 1 : ranks.here;
      check_memory(line.options, trainer, ranks,
                   static_cast<double>(memory_limit_bytes(processes)));
    }
    return line;
  } catch (const std::exception& error) {
    // torchrun ends the others itself
    if (num_ranks == 1 || launcher() == Launcher::kTorchrun) throw;
    World world(Transport::kAuto);
    world.abort(report_error(error, rank, num_ranks));
  }
}

void show_picture(const CommandLine& line, const Trainer& trainer) {
  const std::string& file = *line.picture_file;
  const std::string drawing =
      trainer.picture->show(line.options, num_ranks_of(line.options), !file.empty());
  if (file.empty()) {
    std::fputs(drawing.c_str(), stdout);
  } else {
    check(!fs::exists(file), trainer.picture->option, " ", file,
          ": already exists; choose another name");
    write_text_file(file, drawing);
    std::printf("wrote %s\n", file.c_str());
  }
}

std::string tries_text(const TrainOptions& options, const Trainer& trainer, int num_ranks) {
  Json tries = Json::array();
  for (const auto& [name, words] : trainer.tries(options, num_ranks))
    tries.push_back({{"name", name}, {"words", words}});
  return to_text(tries) + "\n";
}

// Ranks that are threads. The first error ends all of them, and is thrown.
int run_threads(const TrainOptions& options, const Trainer& trainer, const Cluster& cluster) {
  int exit_code = kExitDone;
  const auto run_rank = [&](Communicator& comm) {
    std::unique_ptr<Communicator> own = comm.split(0, 0);
    place_on(machines_of(own->size(), cluster.ranks_per_machine), *own);
    if (cluster.links.is_on())
      own = std::make_unique<PacedCommunicator>(std::move(own), cluster.links);
    TraceLog log;
    World world(std::move(own), Transport::kThreads);
    const int code = check_and_train(options, trainer, world, log);
    if (comm.rank() == 0) exit_code = code;  // it is the same on all
  };
  run_as_threads(options.num_ranks, run_rank, options.num_threads);
  return exit_code;
}

int run_world(const TrainOptions& options, const Trainer& trainer) {
  // From the first step on, a signal means: save and stop. Of several ranks the launcher speaks.
  const StopSignal stop_signal(
      launched_ranks() > 1 ? "" : "stopped before training began: nothing was saved\n");
  const Cluster cluster = cluster_of(options);
  if (options.transport == Transport::kThreads) return run_threads(options, trainer, cluster);
  TraceLog log;
  if (is_simulated(options)) {
    const int num_ranks = options.num_ranks;
    World world(
        std::make_unique<SimulatedCommunicator>(options.simulated_rank, num_ranks, cluster.links,
                                                machines_of(num_ranks, cluster.ranks_per_machine)),
        Transport::kSimulated);
    return check_and_train(options, trainer, world, log);
  }
  World world(options.transport, cluster.links, to_torch(options.device), options.nccl);
  return run_in_world(world, [&] {
    const bool is_said = cluster.ranks_per_machine > 0;
    place_on(is_said ? machines_of(world.comm().size(), cluster.ranks_per_machine)
                     : Machines(world.machine_of_rank()),
             world.comm());
    return check_and_train(options, trainer, world, log);
  });
}

}  // namespace

int run_in_world(World& world, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    const int code = report_error(error, world.comm().rank(), world.comm().size());
    if (world.comm().size() > 1) world.abort(code);
    return code;
  }
}

int run_command(CLI::App& app, int argc, char** argv, const std::function<int()>& run) {
  const bool is_first = launched_rank() == 0;
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::ParseError& error) {  // or --help
    const int code = is_first ? app.exit(error) : error.get_exit_code();
    return code == 0 ? kExitDone : kExitUsage;
  } catch (const std::exception& error) {
    if (is_first) std::fprintf(stderr, "error: %s\n", error.what());
    return exit_code_of(error);
  }
}

int run_main(int argc, char** argv, const Trainer& trainer) {
  // Files of the run must not take the number of a console that was closed, and get its lines.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1) ::open("/dev/null", O_RDWR);
  int rank = 0, num_ranks = 1;
  try {
    rank = launched_rank();
    num_ranks = launched_ranks();
    const CommandLine line = parse_or_abort(argc, argv, trainer, rank, num_ranks);
    if (line.picture_file) {
      if (rank == 0) show_picture(line, trainer);
      return kExitDone;
    }
    if (line.should_exit || line.dry_run_ranks > 0) {
      const std::string text =
          line.should_exit   ? line.text
          : line.wants_tries ? tries_text(line.options, trainer, line.dry_run_ranks)
          : line.is_json ? to_text(dry_run_json(line.options, trainer, line.dry_run_ranks)) + "\n"
                         : describe_run(line.options, trainer, line.dry_run_ranks);
      if (rank == 0) std::fputs(text.c_str(), stdout);
      return kExitDone;
    }
    keep_freed_memory();
    if (line.options.device.is_cuda()) {
      const std::string problem = cuda_problem();
      check_usage(problem.empty(), "--device cuda: ", problem,
                  "; with --device cpu, the CPU trains the same model");
      set_deterministic(line.options.is_deterministic);
    }
    set_compute_threads(line.options.num_threads);
    install_memory_ledger(to_torch(line.options.device).type());
    return run_world(line.options, trainer);
  } catch (const std::exception& error) {
    return report_error(error, rank, num_ranks);
  }
}

}  // namespace ladder
