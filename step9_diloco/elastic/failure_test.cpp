// Workers and lighthouse as real processes, and real signals.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <zmq.hpp>

#include "common/core/check.hpp"
#include "common/core/seed.hpp"
#include "common/core/timer.hpp"
#include "common/testing/program.hpp"
#include "common/testing/temp_folder.hpp"
#include "step9_diloco/elastic/curve_keys.hpp"
#include "step9_diloco/elastic/elastic_options.hpp"
#include "step9_diloco/elastic/listener.hpp"
#include "step9_diloco/elastic/messenger.hpp"
#include "step9_diloco/elastic/report.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kHurry = 60;  // seconds that nothing here may take

void pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::string read_text(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

int count(const std::string& text, const std::string& part) {
  int num = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++num;
  return num;
}

struct Commit {
  double time_s = 0;
  std::int64_t outer_steps = 0;
  std::string hash;
  int num_workers = 0;
};

// This machine's address in the network; the loopback's if it has none.
std::string network_host() {
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
  explicit Group(int num_workers, std::string settings = "", Lock lock = kNone)
      : num_workers_(num_workers), settings_(std::move(settings)) {
    if (lock != kNone) {
      write_curve_keys(key());
      lighthouse_options_ = " --elastic-key " + one_word(key());
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
    const std::string log = folder_.path(concat("lighthouse", num_lighthouses_++));
    lighthouse_.emplace(
        shell(concat(one_word(LADDER_LIGHTHOUSE), " --port ", port_, lighthouse_options_), log));
    wait_until("the lighthouse listens", [&] {
      const std::string text = read_text(log), mark = "port ";
      const std::size_t found = text.find(mark);
      if (found == std::string::npos || text.find('\n') == std::string::npos) return false;
      port_ = std::stoi(text.substr(found + mark.size()));
      return true;
    });
  }
  void kill_lighthouse() { lighthouse_.reset(); }
  Program& lighthouse() { return *lighthouse_; }

  void start(int worker, const std::string& settings = "") { start(worker, settings, host_); }
  void start(int worker, const std::string& settings, const std::string& host) {
    std::filesystem::create_directories(folder_.path() / std::to_string(worker));
    const std::string folder = folder_.path(std::to_string(worker));
    starts_[worker] = log(worker).size();
    workers_[worker] = std::make_unique<Program>(
        shell(concat(one_word(LADDER_TOY_WORKER), " ", host, ":", port_, " ", worker, " ",
                     num_workers_, " ", one_word(folder), " ", settings_, " ", settings),
              folder + "/output"));
  }
  void start_all(const std::string& settings = "") {
    for (int worker = 0; worker < num_workers_; ++worker) start(worker, settings);
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
  // Of the process that runs now.
  std::string new_log(int worker) const { return log(worker).substr(starts_.at(worker)); }
  std::string output(int worker) const {
    return read_text(folder_.path(concat(worker, "/output")));
  }
  std::string lighthouse_log(int number = 0) const {
    return read_text(folder_.path(concat("lighthouse", number)));
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
  // Until this worker, in this epoch, has taken so many more outer steps than now.
  void wait_for_commits(int worker, int num) {
    const std::size_t before = commits_in(new_log(worker)).size();
    wait_until(concat("worker ", worker, " commits ", num, " rounds"), [&] {
      return commits_in(new_log(worker)).size() >= before + static_cast<std::size_t>(num);
    });
  }
  void wait_for_all(int num) {
    for (int worker = 0; worker < num_workers_; ++worker) wait_for_commits(worker, num);
  }
  bool fails(int worker) const { return new_log(worker).find("failed") != std::string::npos; }
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
      const std::string text = new_log(worker);
      std::istringstream words(text.substr(text.find("done ")));
      std::string done, outer_steps, hash;
      words >> done >> outer_steps >> hash >> loss_;
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
  std::string host_ = "127.0.0.1", lighthouse_options_;
  int port_ = 0, num_lighthouses_ = 0;
  std::optional<Program> lighthouse_;
  std::map<int, std::unique_ptr<Program>> workers_;
  std::map<int, std::size_t> starts_;
  double loss_ = 0;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What a death may cost: the round that fails, or the wait until the heartbeats are stale; and a
// busy machine's delays.
constexpr double kHoldUp = 1 + 0.5 + 1;

TEST(Failures, NobodyFailsIfNothingHappens) {
  Group group(3, "min_workers=3");
  group.start_all();
  group.wait_for_commits(0, 30);
  group.finish();
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(group.log(worker), Not(HasSubstr("failed")));
    EXPECT_THAT(group.log(worker), Not(HasSubstr("heals")));
  }
}

TEST(Failures, AWorkerKilledBeforeItsVoteIsLeftBehindAndHealed) {
  Group group(3);
  group.start(0);
  group.start(2);
  group.start(1, "kill='has the average' after=10");
  group.wait_for_commits(0, 1);
  EXPECT_EQ(group.wait(1), 128 + SIGKILL);
  const double killed_s = now_s();
  group.wait_for_commits(0, 10);
  group.wait_for_commits(2, 1);
  const double gap_s = group.longest_gap_s(0, killed_s);
  std::cout << "held up the others for " << gap_s << " s\n";
  EXPECT_LT(gap_s, kHoldUp);
  EXPECT_TRUE(group.fails(0) || group.fails(2));
  group.start(1);
  group.wait_for_log(1, "has healed from worker");
  group.wait_for_commits(1, 3);
  group.finish();
}

TEST(Failures, AWorkerKilledWhileItTrainsCostsTheOthersOneTimeoutAtMost) {
  Group group(3);
  group.start_all();
  for (int kills = 0; kills < 3; ++kills) {
    group.wait_for_all(5);
    const double killed_s = now_s();
    group.kill(2);
    group.wait_for_commits(0, 5);
    std::cout << "held up the others for " << group.longest_gap_s(0, killed_s) << " s\n";
    EXPECT_LT(group.longest_gap_s(0, killed_s), kHoldUp);
    group.start(2);
  }
  group.wait_for_commits(2, 3);
  group.finish();
}

TEST(Failures, TwoKilledAtOnce) {
  Group group(3);
  group.start_all();
  group.wait_for_all(5);
  group.signal(0, SIGKILL);
  group.signal(1, SIGKILL);
  group.kill(0);
  group.kill(1);
  group.wait_for_commits(2, 5);
  group.start(0);
  group.start(1);
  group.wait_for_log(0, "has healed from worker 2");
  group.wait_for_log(1, "has healed from worker");
  group.finish();
}

// Workers 0 and 1 come back from the checkpoint of a round that is over. Worker 2 knows its
// outcome, but is busy for longer than the join time-out. They must not take that round's outer
// step again.
TEST(Failures, ACommittedStepIsNotUndoneWhileOneThatKnowsItIsBusy) {
  Group group(3, "sync_every=16 fragments=1 join_timeout=1.4 round_timeout=1.4");
  group.start(0, "save_at=6");
  group.start(1, "save_at=6");
  group.start(2, "slow_at=7 slow_ms=300");
  group.wait_for_log(2, "is slow from now on");
  group.kill(0);
  group.kill(1);
  group.start(0, "resume=1");
  group.start(1, "resume=1");
  group.wait_for_commits(0, 2);
  group.wait_for_commits(1, 2);
  EXPECT_THAT(group.new_log(0), HasSubstr("has healed from worker 2")) << group.describe();
  EXPECT_THAT(group.new_log(1), HasSubstr("has healed from worker 2")) << group.describe();
  EXPECT_THAT(group.log(2), Not(HasSubstr("heals")));
  group.finish();
}

TEST(Failures, FewerThanTheMinimumWaitForTheOthers) {
  Group group(2, "min_workers=2");
  group.start_all();
  group.wait_for_commits(0, 5);
  group.kill(1);
  pause(2.5);
  const std::int64_t before = group.outer_steps(0);
  pause(1);
  EXPECT_EQ(group.outer_steps(0), before);
  group.start(1);
  group.wait_for_commits(1, 3);
  group.finish();
  for (const Commit& commit : Group::commits_in(group.log(0))) EXPECT_EQ(commit.num_workers, 2);
  EXPECT_THAT(group.log(0), HasSubstr("averages nothing in quorum"));  // but gives its state
}

// Worker 0 goes on alone for long while the others are frozen, and is frozen when they go on. What
// these two have committed counts when it is back, although it has more outer steps.
TEST(Failures, AWorkerThatWasGoneUndoesNothingHoweverFarItWentAlone) {
  Group group(3);
  group.start_all();
  group.wait_for_all(3);
  for (const int worker : {1, 2}) group.signal(worker, SIGSTOP);
  group.wait_for_commits(0, 150);
  group.signal(0, SIGSTOP);
  const std::int64_t alone = group.outer_steps(0);
  for (const int worker : {1, 2}) group.signal(worker, SIGCONT);
  group.wait_for_commits(1, 3);
  const std::int64_t together = group.outer_steps(1);
  EXPECT_GT(alone, together);
  const std::size_t before = group.new_log(0).size();
  group.signal(0, SIGCONT);
  group.wait_for_log(0, "has healed from worker", before);
  group.wait_for_all(3);
  group.finish(/*has_branches=*/true);
}

// Worker 1's values never arrive. A stop does not wait for them, and costs the other no more.
TEST(Failures, AStopEndsAnAverageInFlight) {
  Group group(2, "join_timeout=5 round_timeout=300");
  group.start(0);
  group.start(1, "mute_at=30");
  group.wait_for_log(1, "is mute");
  pause(2);  // until they ask again, and get no further
  const Timer timer;
  group.signal(0, SIGTERM);
  EXPECT_EQ(group.wait(0), 75);
  EXPECT_LT(timer.seconds(), 15) << group.describe();
  EXPECT_THAT(group.log(0), HasSubstr("waits no longer: it is asked to stop"));
  group.wait_for_commits(1, 3);
}

TEST(Failures, ALighthouseThatIsStartedAgain) {
  Group group(3);
  group.start_all();
  for (int kills = 0; kills < 3; ++kills) {
    group.wait_for_all(7 + kills);
    const std::int64_t before = group.outer_steps(0);
    const double killed_s = now_s();
    group.kill_lighthouse();
    pause(0.5 * kills);
    group.start_lighthouse();
    group.wait_for_all(3);
    EXPECT_GT(group.outer_steps(0), before);
    std::cout << "held up the workers for " << group.longest_gap_s(0, killed_s) << " s, of which "
              << 0.5 * kills << " s without a lighthouse\n";
  }
  EXPECT_THAT(group.log(1), HasSubstr("joins again, after a restart of the lighthouse"));
  group.finish();
}

TEST(Failures, AFrozenLighthouse) {
  Group group(3);
  group.start_all();
  group.wait_for_commits(0, 5);
  group.lighthouse().signal(SIGSTOP);
  pause(3);
  group.lighthouse().signal(SIGCONT);
  group.wait_for_all(5);
  group.finish();
}

// Worker 1 stops: it has the average and is about to vote. The others time out and abort. Returns
// what worker 1 had said until then.
std::string stop_before_vote(Group& group) {
  group.start(0);
  group.start(2);
  group.wait_for_commits(0, 3);
  // Counted from before it can stop: on a busy machine the round may have failed before this test
  // sees that it has.
  const std::string others = group.new_log(0) + group.new_log(2);
  group.start(1, "stop='has the average' after=10");
  group.wait_for_log(1, "stops");
  group.wait_until("a round fails", [&] {
    return count(group.new_log(0) + group.new_log(2), "failed") > count(others, "failed");
  });
  return group.new_log(1);
}

// When it wakes, it must obey, and be healed.
TEST(Failures, AWorkerStoppedBeforeItsVoteDoesNotDecideAlone) {
  Group group(3);
  const std::string before = stop_before_vote(group);
  group.wait_for_commits(0, 10);
  const std::int64_t committed = group.outer_steps(1);
  group.signal(1, SIGCONT);
  group.wait_for_log(1, "has healed from worker", before.size());
  group.wait_for_commits(1, 3);
  const std::string after = group.new_log(1).substr(before.size());
  EXPECT_THAT(after.substr(0, after.find("heals from")),
              AllOf(HasSubstr("is aborted"), Not(HasSubstr("commit "))));
  const std::vector<Commit> commits = Group::commits_in(after);
  ASSERT_FALSE(commits.empty());
  EXPECT_GT(commits.front().outer_steps, committed + 5);
  group.finish();
}

// As before, but it wakes when nobody remembers the round: the lighthouse was started again.
TEST(Failures, AWorkerThatWakesAfterTheRoundIsGoneDoesNotDecideAlone) {
  Group group(3);
  const std::string before = stop_before_vote(group);
  group.kill_lighthouse();
  group.start_lighthouse();
  group.wait_for_commits(0, 5);
  group.signal(1, SIGCONT);
  group.wait_for_log(1, "has healed from worker", before.size());
  const std::string after = group.new_log(1).substr(before.size());
  EXPECT_THAT(after.substr(0, after.find("heals from")),
              AllOf(HasSubstr("is gone, undecided"), Not(HasSubstr("commit "))));
  group.wait_for_commits(1, 3);
  group.finish();
}

TEST(Failures, ASlowWorkerWithinTheTimeoutFailsNothing) {
  Group group(3, "join_timeout=6 round_timeout=6 min_workers=3");
  group.start_all();
  for (int stops = 0; stops < 3; ++stops) {
    group.wait_for_commits(0, 5);
    group.signal(1, SIGSTOP);
    pause(1);
    group.signal(1, SIGCONT);
  }
  group.wait_for_commits(0, 5);
  group.finish();
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(group.log(worker), Not(HasSubstr("failed")));
    EXPECT_THAT(group.log(worker), Not(HasSubstr("heals")));
  }
}

// Its heartbeats go on, but its training thread does not: it may cost one join time-out, not one
// in every round.
TEST(Failures, AHungTrainerCostsOneTimeoutNotOneInEveryRound) {
  Group group(3);
  group.start(0);
  group.start(1);
  group.start(2, "nap_at=20 nap=6");
  group.wait_for_log(2, "naps");
  const double hung_s = now_s();
  group.wait_for_commits(0, 20);
  std::cout << "20 rounds beside a hung trainer took " << now_s() - hung_s << " s, the longest "
            << group.longest_gap_s(0, hung_s) << " s\n";
  EXPECT_LT(now_s() - hung_s, 5);
  group.wait_for_log(2, "has healed from worker");
  group.wait_for_commits(2, 3);
  group.finish();
}

TEST(Failures, ADonorKilledWhileItHealsAnother) {
  Group group(4, "width=200000");
  for (const int worker : {0, 2, 3}) group.start(worker);
  for (const int worker : {0, 2, 3}) group.wait_for_commits(worker, 2);
  group.start(1, "kill='gives its state'");  // as the last: nobody heals from it at the start
  group.wait_for_commits(1, 2);
  group.kill(3);
  group.wait_for_commits(0, 2);
  group.start(3);
  EXPECT_EQ(group.wait(1), 128 + SIGKILL);
  group.wait_for_log(3, "could not heal from worker 1");
  group.wait_for_log(3, "has healed from worker");
  group.wait_for_commits(3, 2);
  group.start(1);
  group.wait_for_commits(1, 2);
  group.finish();
}

// Healing takes longer than a round. Others that did not wait would be a round ahead again and
// again.
TEST(Failures, AWorkerThatHealsForLongContributesAgain) {
  Group group(3, "join_timeout=6 round_timeout=3 heal_s=0.5");
  group.start_all();
  group.wait_for_all(1);
  group.kill(2);
  group.wait_for_commits(0, 2);
  group.start(2);
  group.wait_for_log(2, "has healed from worker");
  group.wait_for_log(2, "has the average of quorum");
  group.finish();
  EXPECT_EQ(count(group.new_log(2), "heals from worker"), 1) << group.describe();
}

// The donor trains on while it serves, and dies in the middle of it.
TEST(Failures, ADonorKilledInTheMiddleOfALargeState) {
  Group group(3, "width=1000000 join_timeout=3 round_timeout=3");
  group.start_all();
  group.wait_for_all(1);
  group.kill(2);
  group.wait_for_commits(0, 1);
  group.start(2);
  group.wait_for_log(2, "heals from worker 1");
  pause(0.03);
  group.kill(1);
  group.wait_for_log(2, "has healed from worker");
  group.wait_for_commits(2, 2);
  group.finish();
}

TEST(Failures, AWorkerWithOtherBitsIsHealedByTheMajority) {
  Group group(3, "min_workers=3");
  group.start(0);
  group.start(1);
  group.start(2, "damage_at=20");
  group.wait_for_log(2, "has healed from worker");
  group.wait_for_commits(2, 3);
  group.finish();
  EXPECT_THAT(group.log(0), Not(HasSubstr("heals")));
  EXPECT_THAT(group.log(1), Not(HasSubstr("heals")));
}

// Its values become NaN. It ends alone, and comes back with the others' state.
TEST(Failures, ASickWorkerEndsAlone) {
  Group group(3);
  group.start(0);
  group.start(1);
  group.start(2, "nan_at=30");
  EXPECT_EQ(group.wait(2), 1);
  EXPECT_THAT(group.output(2), HasSubstr("worker 2: a value of its params is not finite"));
  group.wait_for_commits(0, 5);
  group.start(2);
  group.wait_for_commits(2, 3);
  group.finish();
  EXPECT_LT(group.loss(), 0.5);  // as at the start, or less: not NaN
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_THAT(group.log(worker), Not(HasSubstr("failed")));
}

// Its heartbeats arrive, but its data does not. The others say so, and go on without it; it gives
// up.
TEST(Failures, AWorkerBehindAFirewallIsLeftOut) {
  Group group(3, "join_timeout=0.5 round_timeout=0.5");
  group.start(0);
  group.start(1);
  group.start(2, "mute_at=30 patience=3");
  group.wait_for_log(2, "is mute");
  for (int worker = 0; worker < 2; ++worker) {
    group.wait_for_log(worker, "has not received the values of worker 2");
    group.wait_for_commits(worker, 10);
  }
  EXPECT_THAT(group.lighthouse_log(), HasSubstr("leaves out worker 2"));
  EXPECT_EQ(group.wait(2), 75) << group.describe();
  EXPECT_THAT(group.log(2), HasSubstr("gives up after 3 s without a quorum (--patience)"));
  group.start(2);  // the firewall is gone
  group.wait_for_commits(2, 3);
  group.finish();
}

TEST(Failures, AnotherModelIsRefused) {
  Group group(3);
  group.start(0);
  group.start(1);
  group.wait_for_commits(0, 5);
  group.start(2, "width=900");
  EXPECT_EQ(group.wait(2), 1);
  EXPECT_THAT(group.output(2), HasSubstr("worker 2 is refused: its model or options are 'toy'"));
  group.start(2, "min_workers=2");
  EXPECT_EQ(group.wait(2), 1);
  EXPECT_THAT(group.output(2), HasSubstr("--min-workers 2"));
  group.wait_for_commits(0, 5);
  group.finish();
  EXPECT_THAT(group.log(0), Not(HasSubstr("failed")));
}

// As where a machine's own name stands for 127.0.1.1: its worker finds the lighthouse, but no other
// one could ever send to it.
TEST(Failures, AWorkerThatOnlyItsOwnMachineReachesIsRefused) {
  Group group(3, "", Group::kPublic);
  const bool has_network = network_host() != "127.0.0.1";  // else all are refused
  if (has_network) {
    group.start(0);
    group.start(1);
    group.wait_for_commits(0, 5);
  }
  group.start(2, "", "127.0.0.1");
  EXPECT_EQ(group.wait(2), 1);
  EXPECT_THAT(group.output(2), HasSubstr("worker 2 is refused: it listens on tcp://127.0.0.1:"));
  EXPECT_THAT(group.output(2), HasSubstr("--elastic HOST:PORT"));
  if (!has_network) return;
  group.wait_for_commits(0, 5);
  group.finish();
  EXPECT_THAT(group.log(0), Not(HasSubstr("failed")));
}

TEST(Failures, AnotherProcessWithTheSameNumberReplacesTheFirst) {
  Group group(2);
  const TempFolder folder;
  group.start_all();
  group.wait_for_commits(0, 5);
  Program twin({"sh", "-c",
                concat("exec ", one_word(LADDER_TOY_WORKER), " ", group.address(), " 1 2 ",
                       one_word(folder.path().string()), " >/dev/null 2>&1")});
  EXPECT_EQ(group.wait(1), 1);
  EXPECT_THAT(group.output(1),
              HasSubstr("worker 1 is refused: another process has taken its place"));
  twin.signal(SIGKILL);
  group.start(1);
  group.wait_for_commits(1, 3);
  group.finish();
}

// Sends what it likes to the lighthouse.
class Stranger {
 public:
  explicit Stranger(const std::string& address, const std::optional<CurveKeys>& keys = {})
      : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    if (keys) use_keys(socket_, *keys);
    socket_.connect("tcp://" + address);
  }
  void say(const std::string& text) { socket_.send(zmq::buffer(text), zmq::send_flags::dontwait); }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_;
};

// Somebody who knows nothing of all this connects to a worker and to the lighthouse.
TEST(Failures, AStrangerIsIgnored) {
  Group group(2, "min_workers=2");
  group.start_all();
  group.wait_for_commits(0, 5);
  const std::string mark = "listens at ", log = group.log(0);
  const std::string rest = log.substr(log.find(mark)), address = rest.substr(0, rest.find('\n'));
  Random random(1);
  for (const int port :
       {std::stoi(address.substr(address.rfind(':') + 1)), host_port(group.address()).port}) {
    for (const std::size_t num_bytes : {0, 1, 10, 64, 100, 1000, 100000}) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in to = {};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(static_cast<std::uint16_t>(port));
      ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
      std::string bytes(num_bytes, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random.next());
      EXPECT_GE(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
      pause(0.02);
      ::close(fd);
    }
  }
  Stranger stranger(group.address());
  for (const char* const text : {"what is this?", "{}", ""}) stranger.say(text);
  group.wait_for_commits(0, 10);
  group.finish();
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_THAT(group.log(worker), Not(HasSubstr("failed")));
  EXPECT_THAT(group.lighthouse_log(), HasSubstr("ignores what is no report"));
}

// Somebody who reaches the lighthouse's port, but has no key, or another one: says in the name of
// both workers what would end them.
TEST(Failures, AStrangerWithoutTheKeyCannotEndTheRun) {
  Group group(2, "min_workers=2", Group::kKey);
  group.start_all();
  group.wait_for_commits(0, 5);
  const TempFolder folder;
  write_curve_keys(folder.path("key"));
  Stranger plain(group.address()), other(group.address(), read_curve_keys(folder.path("key")));
  Stranger friend_of_the_family(group.address(), read_curve_keys(group.key()));
  for (std::int64_t i = 0; i < 10; ++i) {
    for (int worker = 0; worker < 2; ++worker) {
      const std::string forged = to_text(
          Report{.beat = {.worker = worker, .epoch = ~0ULL, .outer_steps = 1 << 30}, .number = i});
      plain.say(forged);
      other.say(forged);
    }
    pause(0.02);
  }
  group.wait_for_commits(0, 5);
  EXPECT_EQ(count(group.lighthouse_log(), " is back"), 0);
  EXPECT_EQ(count(group.lighthouse_log(), "ignores"), 0);
  friend_of_the_family.say("what is this?");  // the key alone makes the difference
  group.wait_until("the lighthouse hears it",
                   [&] { return count(group.lighthouse_log(), "ignores") == 1; });
  group.finish();
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_THAT(group.log(worker), Not(HasSubstr("failed")));
}

TEST(Failures, AnotherKeyIsNamed) {
  Group group(2, "", Group::kKey);
  const TempFolder folder;
  write_curve_keys(folder.path("key"));
  group.start(0, concat("patience=1.5 key=", one_word(folder.path("key"))));
  EXPECT_EQ(group.wait(0), 75);
  EXPECT_THAT(group.log(0), HasSubstr("does it have this worker's --elastic-key?"));
}

// Kills at seeded random moments, sometimes two at once. One worker at least that has all committed
// steps stays alive, for nobody could heal from the dead.
TEST(Failures, AStorm) {
  const char* const text = std::getenv("LADDER_STORM_KILLS");
  const int num_kills = text == nullptr ? 20 : std::atoi(text);
  Group group(4, "join_timeout=0.6 round_timeout=0.6");
  group.start_all();
  group.wait_for_commits(0, 5);
  Random random(derive_seed(9, "storm"));
  const Timer timer;
  const auto is_current = [&](int worker) {  // has taken part, as the process that it is now
    return group.is_running(worker) && group.outer_steps(worker) > 0;
  };
  int kills = 0;
  while (kills < num_kills) {
    pause(0.3 * random.uniform());
    const auto victim = static_cast<int>(random.below(4));
    int num_others = 0;
    for (int worker = 0; worker < 4; ++worker) num_others += worker != victim && is_current(worker);
    if (group.is_running(victim) && num_others > 0) {
      group.kill(victim);
      ++kills;
    }
    for (int worker = 0; worker < 4; ++worker)
      if (!group.is_running(worker) && random.below(3) == 0) group.start(worker);
    ASSERT_LT(timer.seconds(), 10 + 5 * num_kills) << group.describe();
  }
  for (int worker = 0; worker < 4; ++worker)
    if (!group.is_running(worker)) group.start(worker);
  group.wait_for_all(2);
  group.finish();
  EXPECT_LT(group.loss(), 0.1);  // of 0.5 at the start
  std::cout << kills << " kills in " << timer.seconds() << " s; loss " << group.loss() << "\n";
}

}  // namespace
}  // namespace ladder
