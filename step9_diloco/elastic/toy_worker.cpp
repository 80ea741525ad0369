// For tests: a worker that trains a toy model, a few thousand numbers that walk towards a target,
// and does what it is told when it logs a certain message: die, stop, or damage its state.
//
//   toy_worker LIGHTHOUSE WORKER NUM_WORKERS FOLDER [NAME=VALUE …]
//
// save_at=N: saves its state after N outer steps; resume=1: starts from that. slow_at=N slow_ms=T:
// its inner steps take T ms after N outer steps. mute_at=N: after N inner steps it gives others no
// values any more, as if a firewall kept them back. The other settings are read below.
//
// It writes FOLDER/log, a line per event with the time in seconds, and ends at the outer step in
// FOLDER/../stop, once that file is there. Of a round: commit or failed, outer steps, the hash of
// the global copy and momentum, contributors, inner steps of this worker that the average is about.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "common/core/check.hpp"
#include "common/core/compute_threads.hpp"
#include "common/optim/flat_model.hpp"
#include "common/train/stop_signal.hpp"
#include "step9_diloco/diloco.hpp"
#include "step9_diloco/elastic/elastic_averager.hpp"
#include "step9_diloco/elastic/worker.hpp"

namespace ladder {
namespace {

class EventLog {
 public:
  explicit EventLog(const std::string& folder)
      : file_(std::fopen((folder + "/log").c_str(), "a")) {}
  void write(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const double now_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    std::fprintf(file_, "%.4f %s\n", now_s, text.c_str());
    std::fflush(file_);
  }

 private:
  std::mutex mutex_;
  std::FILE* file_;
};

using Settings = std::map<std::string, std::string>;

double number(const Settings& settings, const std::string& name, double otherwise) {
  return settings.contains(name) ? std::stod(settings.at(name)) : otherwise;
}

// kill=TEXT, stop=TEXT, exit with a signal when a message contains the text, at the `after`-th
// time.
void misbehave(const Settings& settings, const std::string& message, EventLog& events) {
  static std::atomic<int> num_kill = 0, num_stop = 0;
  const auto is_due = [&](const char* name, std::atomic<int>& count) {
    return settings.contains(name) && message.find(settings.at(name)) != std::string::npos &&
           ++count == static_cast<int>(number(settings, "after", 1));
  };
  if (is_due("kill", num_kill)) ::kill(::getpid(), SIGKILL);
  if (is_due("stop", num_stop)) {
    static std::atomic<bool> goes_on = false;
    std::signal(SIGCONT, [](int) { goes_on = true; });
    events.write("stops");
    ::raise(SIGSTOP);
    // The process may take a moment to stop: this thread does nothing in it.
    while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// FOLDER/state: the tensors, one after the other, the counters, and how new the state is.
void save_state(const WorkerState& state, const QuorumNumber& last_quorum,
                const std::string& folder) {
  std::ofstream file(folder + "/state.new", std::ios::binary);
  for (const auto* list : {&state.shared, &state.own})
    for (const NamedTensor& named : *list)
      file.write(static_cast<const char*>(named.tensor.const_data_ptr()),
                 static_cast<std::streamsize>(named.tensor.nbytes()));
  for (const std::int64_t counter : state.counters()) file << counter << " ";
  file << last_quorum.lighthouse_epoch << " " << last_quorum.id << " ";
  file.close();
  std::filesystem::rename(folder + "/state.new", folder + "/state");
}

QuorumNumber load_state(const WorkerState& state, const std::string& folder) {
  std::ifstream file(folder + "/state", std::ios::binary);
  for (const auto* list : {&state.shared, &state.own})
    for (const NamedTensor& named : *list)
      file.read(static_cast<char*>(named.tensor.mutable_data_ptr()),
                static_cast<std::streamsize>(named.tensor.nbytes()));
  std::vector<std::int64_t> counters = state.counters();
  for (std::int64_t& counter : counters) file >> counter;
  QuorumNumber last_quorum;
  file >> last_quorum.lighthouse_epoch >> last_quorum.id;
  check(file.good(), "there is no ", folder, "/state");
  state.set_counters(counters);
  return last_quorum;
}

int run(const std::string& lighthouse, int worker, int num_workers, const std::string& folder,
        const Settings& settings) {
  const at::NoGradGuard no_grad;
  const StopSignal stop_signal;
  set_compute_threads(1);
  EventLog events(folder);
  const auto log = [&](const std::string& message) {
    events.write("says: " + message);
    misbehave(settings, message, events);
  };
  const auto width = static_cast<std::int64_t>(number(settings, "width", 1000));
  const auto make_unit = [&] {
    return std::vector<Unit>{
        {"unit", {{"a", at::zeros({width})}, {"b", at::zeros({3, width})}, {"c", at::zeros({7})}}}};
  };
  FlatModel model(make_unit()), global(make_unit());
  const at::Tensor momentum = at::zeros_like(model.params());
  const DilocoOptions options = {
      .sync_every = static_cast<std::int64_t>(number(settings, "sync_every", 4)),
      .num_fragments = static_cast<std::int64_t>(number(settings, "fragments", 2)),
      .sync_delay = static_cast<std::int64_t>(number(settings, "delay", 0)),
      .alpha = number(settings, "alpha", 0)};
  ElasticOptions elastic = {.lighthouse = lighthouse,
                            .worker = worker,
                            .num_workers = num_workers,
                            .min_workers = static_cast<int>(number(settings, "min_workers", 1)),
                            .join_timeout_s = number(settings, "join_timeout", 1),
                            .round_timeout_s = number(settings, "round_timeout", 1),
                            .patience_s = number(settings, "patience", 60)};
  if (settings.contains("key")) elastic.key_file = settings.at("key");
  if (number(settings, "tokens", 0) > 0) elastic.merge = Merge::kTokens;
  ElasticAverager averager(elastic, Log(log, log));
  Diloco diloco(model, global, options, averager);
  std::int64_t step = 0, num_new_steps = 0;  // the latter in this round
  const WorkerState state = {
      .shared = {{"global", global.params()}, {"velocity", diloco.velocity()}},
      .own = {{"params", model.params()}, {"momentum", momentum}},
      .outer_steps = [&] { return diloco.round().outer_steps; },
      .counters =
          [&] {
            return std::vector<std::int64_t>{diloco.round().outer_steps, step};
          },
      .set_counters =
          [&](const std::vector<std::int64_t>& values) {
            std::this_thread::sleep_for(
                std::chrono::duration<double>(number(settings, "heal_s", 0)));
            diloco.restore({values[0], {}});
            step = values[1];
            num_new_steps = 0;
          },
  };
  if (settings.contains("resume")) averager.restore(load_state(state, folder));
  averager.join(state, "toy");
  const at::Tensor target = at::sin(at::arange(model.params().numel(), at::kFloat));
  const auto duration = [&](const char* name, double otherwise_ms) {
    return std::chrono::duration<double, std::milli>(number(settings, name, otherwise_ms));
  };
  const auto pause = duration("step_ms", 2), slow_pause = duration("slow_ms", 0);
  const auto slow_at = static_cast<std::int64_t>(number(settings, "slow_at", -1));
  const auto mute_at = static_cast<std::int64_t>(number(settings, "mute_at", 1e9));
  const auto save_at = static_cast<std::int64_t>(number(settings, "save_at", -1));
  const std::filesystem::path stop = std::filesystem::path(folder).parent_path() / "stop";
  std::int64_t last_step = -1;  // outer; −1: not known yet
  for (std::int64_t num_steps = 1; last_step < 0 || diloco.round().outer_steps < last_step;
       ++num_steps) {
    const bool is_slow = diloco.round().outer_steps == slow_at;
    if (is_slow && num_new_steps == 0) events.write("is slow from now on");
    std::this_thread::sleep_for(is_slow ? slow_pause : pause);
    momentum.mul_(0.5).add_(model.params() - target + 0.01 * at::cos(target * (worker + step)));
    model.params().sub_(momentum, 0.02);
    ++step;
    ++num_new_steps;
    averager.note_step(number(settings, "weight", 1));
    if (num_steps == static_cast<std::int64_t>(number(settings, "damage_at", 0))) {
      global.params()[5].add_(1);
      events.write("damages its global copy");
    }
    if (num_steps == static_cast<std::int64_t>(number(settings, "nan_at", 0))) {
      model.params()[5] = std::nan("");
      events.write("is sick");
    }
    if (num_steps == mute_at) events.write("is mute");
    if (num_steps == static_cast<std::int64_t>(number(settings, "nap_at", 0))) {
      events.write("naps");
      std::this_thread::sleep_for(std::chrono::duration<double>(number(settings, "nap", 0)));
    }
    const DilocoAction due = plan_diloco(options, num_steps);
    if (due.starts && averager.form_quorum()) {
      const std::vector<Member>& members = averager.quorum().members;
      if (averager.counts().num_commits == 0)
        events.write("listens at " + averager.quorum().member(worker).address);
      const bool is_mute = num_steps >= mute_at && members.size() > 1;
      if (!is_mute) diloco.start_average();
    }
    if (!due.finishes) continue;
    const bool is_committed = finish_round(diloco, averager);
    events.write(concat(is_committed ? "commit " : "failed ", diloco.round().outer_steps, " ",
                        shared_hash(state), " ", averager.quorum().contributors().size(), " ",
                        num_new_steps));
    if (diloco.round().outer_steps == save_at) save_state(state, averager.last_quorum(), folder);
    num_new_steps = 0;  // a failed round has put the global parameters in their place
    if (StopSignal::was_raised()) break;
    if (last_step < 0 && std::filesystem::exists(stop)) std::ifstream(stop) >> last_step;
  }
  averager.end();
  events.write(concat("done ", diloco.round().outer_steps, " ", shared_hash(state), " ",
                      at::mse_loss(model.params(), target).item<double>()));
  return StopSignal::was_raised() ? 75 : 0;  // as trainers do
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  try {
    ladder::check(argc >= 5, "toy_worker LIGHTHOUSE WORKER NUM_WORKERS FOLDER [NAME=VALUE …]");
    ladder::Settings settings;
    for (int i = 5; i < argc; ++i) {
      const std::string text = argv[i];
      settings[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
    return ladder::run(argv[1], std::stoi(argv[2]), std::stoi(argv[3]), argv[4], settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "toy_worker: %s\n", error.what());
    return 1;
  }
}
