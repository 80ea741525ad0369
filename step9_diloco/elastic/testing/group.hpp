// For tests: workers and a lighthouse as real processes, to which real signals are sent.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/elastic/messenger.hpp"

namespace ladder {

inline constexpr double kHurry = 60;  // seconds that nothing here may take

inline void pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

inline std::string read_text(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline int count(const std::string& text, const std::string& part) {
  int num = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++num;
  return num;
}

// What follows its first `mark`, which it contains.
inline std::string rest_after(const std::string& mark, const std::string& text) {
  const std::size_t at = text.find(mark);
  check(at != std::string::npos, "it does not say ", mark, ": ", text);
  return text.substr(at + mark.size());
}

struct Commit {
  double time_s = 0;
  std::int64_t outer_steps = 0;
  std::string hash;
  int num_workers = 0;
};

// This machine's address in the network; the loopback's if it has none.
inline std::string network_host() {
  try {
    return own_host({"192.0.2.1", 9});  // nobody's: nothing is sent there
  } catch (const CheckError&) {
    return "127.0.0.1";
  }
}

// A lighthouse and some workers in a folder.
class Group {
 public:
  enum Lock { kNone, kKey, kPublic };  // with a key; with a key, and reached by the network
  // `rules`: of the lighthouse.
  explicit Group(int num_workers, std::string settings = "",
                 const std::string& rules = "--join-timeout 1", Lock lock = kNone)
      : num_workers_(num_workers),
        settings_(std::move(settings)),
        lighthouse_options_(" " + rules) {
    if (lock != kNone) {
      write_curve_keys(key());
      lighthouse_options_ += " --elastic-key " + one_word(key());
      settings_ += " key=" + one_word(key());
    }
    if (lock == kPublic) {
      lighthouse_options_ += " --public";
      host_ = network_host();
    }
    start_lighthouse();
  }

  std::string key() const { return folder_.path("key"); }

  void start_lighthouse() {
    const std::string log = folder_.path(concat("lighthouse", ++num_lighthouses_));
    lighthouse_.emplace(
        shell(concat(one_word(LADDER_LIGHTHOUSE), " --port ", port_, lighthouse_options_), log));
    wait_until("the lighthouse listens", [&] { return read_text(log).ends_with('\n'); });
    port_ = std::stoi(rest_after("port ", read_text(log)));
  }
  void kill_lighthouse() { lighthouse_.reset(); }
  Program& lighthouse() { return *lighthouse_; }

  // `host`: by which it calls the lighthouse, if not as the others do.
  void start(int worker, const std::string& settings = "", const std::string& host = "") {
    std::filesystem::create_directories(folder_.path() / std::to_string(worker));
    const std::string folder = folder_.path(std::to_string(worker));
    starts_[worker] = log(worker).size();
    workers_[worker] = std::make_unique<Program>(shell(
        concat(one_word(LADDER_TOY_WORKER), " ", host.empty() ? host_ : host, ":", port_, " ",
               worker, " ", num_workers_, " ", one_word(folder), " ", settings_, " ", settings),
        folder + "/output"));
  }
  void start(std::initializer_list<int> workers, const std::string& settings = "") {
    for (const int worker : workers) start(worker, settings);
  }
  void start_all() {
    for (int worker = 0; worker < num_workers_; ++worker) start(worker);
  }
  void kill(int worker) { workers_.erase(worker); }  // SIGKILL, and waits
  void signal(int worker, int number) { workers_.at(worker)->signal(number); }
  bool is_running(int worker) const { return workers_.contains(worker); }
  int wait(int worker) {
    const int code = workers_.at(worker)->wait(kHurry);
    workers_.erase(worker);
    return code;
  }

  std::string log(int worker) const { return read_text(folder_.path(concat(worker, "/log"))); }
  // The log of the process that runs now.
  std::string new_log(int worker) const { return log(worker).substr(starts_.at(worker)); }
  std::string output(int worker) const {
    return read_text(folder_.path(concat(worker, "/output")));
  }
  std::string lighthouse_log() const {  // of the first
    return read_text(folder_.path("lighthouse1"));
  }

  static std::vector<Commit> commits_in(const std::string& log) {
    std::vector<Commit> commits;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Commit commit;
      std::string what;
      words >> commit.time_s >> what >> commit.outer_steps >> commit.hash >> commit.num_workers;
      if (what == "commit" && words) commits.push_back(commit);
    }
    return commits;
  }
  std::int64_t outer_steps(int worker) const {
    const std::vector<Commit> commits = commits_in(new_log(worker));
    return commits.empty() ? 0 : commits.back().outer_steps;
  }

  void wait_until(const std::string& what, const std::function<bool()>& is_true) {
    const Timer timer;
    while (!is_true()) {
      check(timer.seconds() < kHurry, "it is not so after ", kHurry, " s: ", what, "\n",
            [&] { return describe(); });
      pause(0.005);
    }
  }
  // Waits until this worker, in this epoch, has taken so many more outer steps than now.
  void wait_for_commits(int worker, int num) {
    const std::size_t before = commits_in(new_log(worker)).size();
    wait_until(concat("worker ", worker, " commits ", num, " rounds"), [&] {
      return commits_in(new_log(worker)).size() >= before + static_cast<std::size_t>(num);
    });
  }
  void wait_for_commits(std::initializer_list<int> workers, int num) {
    for (const int worker : workers) wait_for_commits(worker, num);
  }
  void wait_for_all(int num) {
    for (int worker = 0; worker < num_workers_; ++worker) wait_for_commits(worker, num);
  }
  // It ends with an error that says this.
  void expect_error(int worker, const std::string& text) {
    EXPECT_EQ(wait(worker), 1) << describe();
    EXPECT_THAT(output(worker), ::testing::HasSubstr(text));
  }
  // No round of these workers has failed, and none has healed.
  void expect_calm(const std::vector<int>& workers) const {
    for (const int worker : workers)
      EXPECT_EQ(count(log(worker), "failed") + count(log(worker), "heals"), 0) << log(worker);
  }
  // `from`: what its log held before does not count.
  void wait_for_log(int worker, const std::string& text, std::size_t from = 0) {
    wait_until(concat("worker ", worker, " says: ", text),
               [&] { return new_log(worker).find(text, from) != std::string::npos; });
  }

  // Ends the run a few rounds later; all workers that run must end at the same outer step, with the
  // same bits. `has_branches`: a worker has trained on alone, and then lost what it had.
  void finish(bool has_branches = false) {
    std::int64_t last = 0;
    for (const auto& [worker, program] : workers_) last = std::max(last, outer_steps(worker));
    folder_.write("stop.new", std::to_string(last + 15));
    std::filesystem::rename(folder_.path("stop.new"), folder_.path("stop"));
    std::map<std::string, std::string> ends;
    while (!workers_.empty()) {
      const int worker = workers_.begin()->first;
      ASSERT_EQ(wait(worker), 0) << output(worker) << describe();
      std::istringstream words(rest_after("done ", new_log(worker)));
      std::string outer_steps, hash;
      words >> outer_steps >> hash >> loss_;
      ends[outer_steps + " " + hash] += concat(worker, " ");
    }
    EXPECT_EQ(ends.size(), 1U) << ::testing::PrintToString(ends) << describe();
    if (!has_branches) check_history();
  }
  double loss() const { return loss_; }

  // Nobody ever went back, and nobody has ever seen another state at the same outer step.
  void check_history() const {
    std::map<std::int64_t, std::string> states;
    for (int worker = 0; worker < num_workers_; ++worker) {
      std::int64_t last = 0;
      for (const Commit& commit : commits_in(log(worker))) {
        EXPECT_GT(commit.outer_steps, last) << "worker " << worker;
        last = commit.outer_steps;
        const auto [known, is_new] = states.try_emplace(commit.outer_steps, commit.hash);
        EXPECT_EQ(known->second, commit.hash) << "outer step " << last << ", worker " << worker;
      }
    }
  }

  // The longest time between two commits of this worker, from `since_s` on.
  double longest_gap_s(int worker, double since_s) const {
    double longest = 0, last = since_s;
    for (const Commit& commit : commits_in(log(worker))) {
      if (commit.time_s < since_s) continue;
      longest = std::max(longest, commit.time_s - last);
      last = commit.time_s;
    }
    return longest;
  }

  std::string address() const { return concat("127.0.0.1:", port_); }

  std::string describe() const {
    std::string text;
    for (int worker = 0; worker < num_workers_; ++worker) {
      const std::string all = log(worker);
      text += concat("\nworker ", worker, " ends with\n",
                     all.substr(std::max<std::size_t>(all.size(), 1500) - 1500), output(worker));
    }
    return text;
  }

 private:
  static std::vector<std::string> shell(const std::string& command, const std::string& output) {
    return {"sh", "-c", concat("exec ", command, " 3>&1 >", one_word(output), " 2>&1")};
  }

  TempFolder folder_;
  int num_workers_;
  std::string settings_;
  std::string lighthouse_options_, host_ = "127.0.0.1";
  int port_ = 0, num_lighthouses_ = 0;
  std::optional<Program> lighthouse_;
  std::map<int, std::unique_ptr<Program>> workers_;
  std::map<int, std::size_t> starts_;
  double loss_ = 0;
};

}  // namespace ladder
