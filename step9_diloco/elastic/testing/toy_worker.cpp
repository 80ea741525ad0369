// For tests: a worker that trains a toy model, a few thousand numbers that walk towards a target,
// and does what it is told when it logs a certain message: die, stop, or damage its state.
//
//   elastic_testing_toy_worker LIGHTHOUSE WORKER NUM_WORKERS FOLDER [NAME=VALUE …]
//
// save_at=N: saves its state after N outer steps; resume=1: starts from that. slow_at=N slow_ms=T:
// its inner steps take T ms after N outer steps. mute_at=N: after N inner steps it gives others no
// values any more, as if a firewall kept them back. The other settings are read below.
//
// It writes FOLDER/log, a line per event with the time in seconds, and ends at the outer step in
// FOLDER/../stop, once that file is there. Of a round: commit or failed, outer steps, the hash of
// the global copy and momentum, contributors, inner steps of this worker that the average is about.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
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
#include "common/core/stop_signal.hpp"
#include "common/optim/flat_model.hpp"
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

struct Settings {
  std::map<std::string, std::string> texts;

  double number(const std::string& name, double otherwise) const {
    return texts.contains(name) ? std::stod(texts.at(name)) : otherwise;
  }
  std::int64_t count(const std::string& name, std::int64_t otherwise) const {
    return texts.contains(name) ? std::stoll(texts.at(name)) : otherwise;
  }
};

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// kill=TEXT, stop=TEXT: gets the signal when a message contains the text, at the `after`-th time.
void misbehave(const Settings& settings, const std::string& message, EventLog& events) {
  static std::atomic<int> num_kill = 0, num_stop = 0;
  const auto is_due = [&](const char* name, std::atomic<int>& count) {
    const auto text = settings.texts.find(name);
    return text != settings.texts.end() && message.find(text->second) != std::string::npos &&
           ++count == settings.count("after", 1);
  };
  if (is_due("kill", num_kill)) ::kill(::getpid(), SIGKILL);
  if (is_due("stop", num_stop)) {
    static std::atomic<bool> goes_on = false;
    std::signal(SIGCONT, [](int) { goes_on = true; });
    events.write("stops");
    ::raise(SIGSTOP);
    // The process may take a moment to stop: this thread does nothing in it.
    while (!goes_on) sleep_for(0.001);
  }
}

// FOLDER/state: a snapshot, and which history it belongs to.
void save_state(const WorkerState& state, const History& history, const std::string& folder) {
  const std::string snapshot = take_snapshot(state);
  std::ofstream file(folder + "/state.new", std::ios::binary);
  file.write(snapshot.data(), std::ssize(snapshot));
  const auto& [run, last] = history;
  file << run << " " << last.lighthouse_epoch << " " << last.id << " ";
  file.close();
  std::filesystem::rename(folder + "/state.new", folder + "/state");
}

History load_state(const WorkerState& state, const std::string& folder) {
  std::string snapshot = take_snapshot(state);  // as long as the one that is saved
  std::ifstream file(folder + "/state", std::ios::binary);
  History history;
  file.read(snapshot.data(), std::ssize(snapshot));
  file >> history.run >> history.last_quorum.lighthouse_epoch >> history.last_quorum.id;
  check(file.good(), "there is no ", folder, "/state");
  adopt_snapshot(snapshot, state);
  return history;
}

ElasticOptions elastic_options(const std::string& lighthouse, int worker, int num_workers,
                               const Settings& settings) {
  return {.lighthouse = lighthouse,
          .key_file = settings.texts.contains("key") ? settings.texts.at("key") : "",
          .worker = worker,
          .num_workers = num_workers,
          .round_timeout_s = settings.number("round_timeout", 1),
          .patience_s = settings.number("patience", 60)};
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
  const std::int64_t width = settings.count("width", 1000);
  const auto make_unit = [&] {
    return std::vector<Unit>{
        {"unit", {{"a", at::zeros({width})}, {"b", at::zeros({3, width})}, {"c", at::zeros({7})}}}};
  };
  FlatModel model(make_unit()), global(make_unit());
  const at::Tensor momentum = at::zeros_like(model.params());
  const DilocoOptions options = {.sync_every = settings.count("sync_every", 4),
                                 .num_fragments = settings.count("fragments", 2)};
  ElasticAverager averager(elastic_options(lighthouse, worker, num_workers, settings), log, log);
  Diloco diloco(model, global, options, averager);
  std::int64_t step = 0, num_new_steps = 0;  // the latter in this round
  const auto outer_steps = [&] { return diloco.round().outer_steps; };
  const WorkerState state = {
      .shared = {{"global", global.params()}, {"velocity", diloco.velocity()}},
      .own = {{"params", model.params()}, {"momentum", momentum}},
      .outer_steps = outer_steps,
      .counters =
          [&] {
            return std::vector<std::int64_t>{outer_steps(), step};
          },
      .set_counters =
          [&](const std::vector<std::int64_t>& values) {
            sleep_for(settings.number("heal_s", 0));
            diloco.restore({values[0], {}});
            step = values[1];
            num_new_steps = 0;
          },
  };
  if (settings.texts.contains("resume")) averager.restore(load_state(state, folder));
  averager.join(state, {{"model", "toy"}});
  const at::Tensor target = at::sin(at::arange(model.params().numel(), at::kFloat));
  const std::int64_t mute_at = settings.count("mute_at", 1'000'000'000);
  const std::filesystem::path stop = std::filesystem::path(folder).parent_path() / "stop";
  std::int64_t last_step = -1;  // outer; −1: not known yet
  for (std::int64_t num_steps = 1; last_step < 0 || outer_steps() < last_step; ++num_steps) {
    const bool is_slow = outer_steps() == settings.count("slow_at", -1);
    if (is_slow && num_new_steps == 0) events.write("is slow from now on");
    sleep_for(settings.number(is_slow ? "slow_ms" : "step_ms", 2) / 1000);
    momentum.mul_(0.5).add_(model.params() - target + 0.01 * at::cos(target * (worker + step)));
    model.params().sub_(momentum, 0.02);
    ++step;
    ++num_new_steps;
    averager.note_step();
    const auto is_time_for = [&](const char* name, const char* event) {
      if (num_steps != settings.count(name, 0)) return false;
      events.write(event);
      return true;
    };
    is_time_for("mute_at", "is mute");
    if (is_time_for("damage_at", "damages its global copy")) global.params()[5].add_(1);
    if (is_time_for("nan_at", "is sick")) model.params()[5] = std::nan("");
    if (is_time_for("nap_at", "naps")) sleep_for(settings.number("nap", 0));
    const DilocoAction due = plan_diloco(options, num_steps);
    if (due.starts && averager.form_quorum()) {
      const Quorum& quorum = averager.quorum();
      if (averager.counts().num_commits == 0)
        events.write("listens at " + quorum.member(worker).address);
      const bool is_mute = num_steps >= mute_at && quorum.members.size() > 1;
      if (!is_mute) diloco.start_average();
    }
    if (!due.finishes) continue;
    const bool is_committed = finish_round(diloco, averager);
    events.write(concat(is_committed ? "commit " : "failed ", outer_steps(), " ",
                        shared_hash(state), " ", averager.quorum().contributors().size(), " ",
                        num_new_steps));
    if (outer_steps() == settings.count("save_at", -1))
      save_state(state, averager.history(), folder);
    num_new_steps = 0;  // a failed round has put the global parameters in their place
    if (StopSignal::was_raised()) break;
    if (last_step < 0 && std::filesystem::exists(stop)) std::ifstream(stop) >> last_step;
  }
  averager.end();
  events.write(concat("done ", outer_steps(), " ", shared_hash(state), " ",
                      at::mse_loss(model.params(), target).item<double>()));
  return StopSignal::was_raised() ? 75 : 0;  // as trainers do
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  try {
    ladder::check(argc >= 5, "usage: LIGHTHOUSE WORKER NUM_WORKERS FOLDER [NAME=VALUE …]");
    ladder::Settings settings;
    for (int i = 5; i < argc; ++i) {
      const std::string text = argv[i];
      settings.texts[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
    return ladder::run(argv[1], std::stoi(argv[2]), std::stoi(argv[3]), argv[4], settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "toy_worker: %s\n", error.what());
    return 1;
  }
}
