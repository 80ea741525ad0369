// Workers and lighthouse as real processes, and real signals.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "common/core/seed.hpp"
#include "step9_diloco/elastic/report.hpp"
#include "step9_diloco/elastic/testing/group.hpp"
#include "step9_diloco/elastic/testing/peer.hpp"

namespace ladder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What a death may cost: the round that fails, or the wait until the heartbeats are stale; and a
// busy machine's delays.
constexpr double kHoldUp = 1 + 0.5 + 1;

// While the others wait for its vote, while it trains, and two at once.
TEST(Failures, AWorkerThatIsKilledCostsTheOthersOneTimeoutAtMost) {
  Group group(3);
  const auto expect_short = [&](int worker, double killed_s) {
    const double gap_s = group.longest_gap_s(worker, killed_s);
    std::cout << "held up the others for " << gap_s << " s\n";
    EXPECT_LT(gap_s, kHoldUp);
  };
  group.start({0, 2});
  group.start(1, "kill='has the average' after=10");
  group.wait_for_commits(0, 1);
  EXPECT_EQ(group.wait(1), 128 + SIGKILL);
  double killed_s = now_s();
  group.wait_for_commits(0, 10);
  group.wait_for_commits(2, 1);
  expect_short(0, killed_s);
  EXPECT_GT(count(group.log(0) + group.log(2), "failed"), 0);
  group.start(1);
  group.wait_for_log(1, "has healed from worker");
  for (int kills = 0; kills < 2; ++kills) {
    group.wait_for_all(5);
    killed_s = now_s();
    group.kill(2);
    group.wait_for_commits(0, 5);
    expect_short(0, killed_s);
    group.start(2);
  }
  group.wait_for_all(5);
  group.signal(0, SIGKILL);
  group.kill(1);
  group.kill(0);
  group.wait_for_commits(2, 5);
  group.start({0, 1});
  group.wait_for_log(0, "has healed from worker 2");
  group.wait_for_log(1, "has healed from worker");
  group.finish();
}

// Workers 0 and 1 come back from the checkpoint of a round that is over. Worker 2 knows its
// outcome, but is busy for longer than the join time-out. They must not take that round's outer
// step again.
TEST(Failures, ACommittedStepIsNotUndoneWhileOneThatKnowsItIsBusy) {
  Group group(3, "sync_every=16 fragments=1 round_timeout=1.4", "--join-timeout 1.4");
  group.start({0, 1}, "save_at=6");
  group.start(2, "slow_at=7 slow_ms=300");
  group.wait_for_log(2, "is slow from now on");
  group.kill(0);
  group.kill(1);
  group.start({0, 1}, "resume=1");
  group.wait_for_commits({0, 1}, 2);
  EXPECT_THAT(group.new_log(0), HasSubstr("has healed from worker 2")) << group.describe();
  EXPECT_THAT(group.new_log(1), HasSubstr("has healed from worker 2")) << group.describe();
  EXPECT_THAT(group.log(2), Not(HasSubstr("heals")));
  group.finish();
}

TEST(Failures, FewerThanTheMinimumWaitForTheOthers) {
  Group group(2, "", "--min-workers 2 --join-timeout 1");
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
  Group group(2, "round_timeout=300", "--join-timeout 5");
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

TEST(Failures, ALighthouseThatIsStartedAgainOrFrozen) {
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
  group.lighthouse().signal(SIGSTOP);
  pause(3);
  group.lighthouse().signal(SIGCONT);
  group.wait_for_all(5);
  group.finish();
}

// Worker 1 stops: it has the average and is about to vote. The others time out and abort. When it
// wakes, it must obey, and be healed; also when nobody remembers the round, because the lighthouse
// was started again.
TEST(Failures, AWorkerStoppedBeforeItsVoteDoesNotDecideAlone) {
  for (const bool is_forgotten : {false, true}) {
    SCOPED_TRACE(is_forgotten);
    Group group(3);
    group.start({0, 2});
    group.wait_for_commits(0, 3);
    // Counted from before it can stop: on a busy machine the round may have failed before this test
    // sees that it has.
    const auto num_failed = [&] { return count(group.new_log(0) + group.new_log(2), "failed"); };
    const int others = num_failed();
    group.start(1, "stop='has the average' after=10");
    group.wait_for_log(1, "stops");
    group.wait_until("a round fails", [&] { return num_failed() > others; });
    const std::size_t before = group.new_log(1).size();
    const std::int64_t committed = group.outer_steps(1);
    if (is_forgotten) {
      group.kill_lighthouse();
      group.start_lighthouse();
    }
    group.wait_for_commits(0, 10);
    group.signal(1, SIGCONT);
    group.wait_for_log(1, "has healed from worker", before);
    group.wait_for_commits(1, 3);
    const std::string after = group.new_log(1).substr(before);
    EXPECT_THAT(after.substr(0, after.find("heals from")),
                AllOf(HasSubstr(is_forgotten ? "is gone, undecided" : "is aborted"),
                      Not(HasSubstr("commit "))));
    EXPECT_GT(Group::commits_in(after).front().outer_steps, committed + 5);
    group.finish();
  }
}

TEST(Failures, ASlowWorkerWithinTheTimeoutFailsNothing) {
  Group group(3, "round_timeout=6", "--min-workers 3 --join-timeout 6");
  group.start_all();
  for (int stops = 0; stops < 3; ++stops) {
    group.wait_for_commits(0, 5);
    group.signal(1, SIGSTOP);
    pause(1);
    group.signal(1, SIGCONT);
  }
  group.wait_for_commits(0, 5);
  group.finish();
  group.expect_calm({0, 1, 2});
}

// A worker's heartbeats go on, but its training thread does not: it may cost one join time-out, not
// one in every round.
TEST(Failures, AHungTrainerCostsOneTimeoutNotOneInEveryRound) {
  Group group(3);
  group.start({0, 1});
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

// It is killed before it gives anything to worker 2, and in the middle of a large state; the donor
// trains on while it serves.
TEST(Failures, ADonorKilledWhileItHealsAnother) {
  Group group(3, "width=1000000 round_timeout=3", "--join-timeout 3");
  group.start({0, 2});
  group.wait_for_commits({0, 2}, 1);
  group.start(1, "kill='gives its state'");  // as the last: nobody heals from it at the start
  for (const bool is_in_the_middle : {false, true}) {
    group.wait_for_commits(1, 1);
    group.kill(2);
    group.wait_for_commits(0, 1);
    group.start(2);
    group.wait_for_log(2, "heals from worker 1");
    if (is_in_the_middle) {
      pause(0.03);
      group.kill(1);
    } else {
      EXPECT_EQ(group.wait(1), 128 + SIGKILL);
      group.wait_for_log(2, "could not heal from worker 1");
    }
    group.wait_for_log(2, "has healed from worker");
    group.wait_for_commits(2, 2);
    group.start(1);
  }
  group.wait_for_commits(1, 1);
  group.finish();
}

// Healing takes longer than a round. Others that did not wait would be a round ahead again and
// again.
TEST(Failures, AWorkerThatHealsForLongContributesAgain) {
  Group group(3, "round_timeout=3 heal_s=0.5", "--join-timeout 6");
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

// Worker 2 has other bits in its global copy: the majority heals it. Then its values become NaN: it
// ends alone, and comes back with the others' state.
TEST(Failures, ADamagedWorkerHealsAndASickOneEndsAlone) {
  Group group(3, "", "--min-workers 2 --join-timeout 1");
  group.start({0, 1});
  group.start(2, "damage_at=20 nan_at=200");
  group.wait_for_log(2, "damages its global copy");
  const std::string log = group.new_log(2);
  group.wait_for_log(2, "has healed from worker", log.find("damages"));
  group.expect_error(2, "worker 2: a value of its params is not finite");
  group.wait_for_commits(0, 5);
  group.start(2);
  group.wait_for_commits(2, 3);
  group.finish();
  EXPECT_LT(group.loss(), 0.5);  // as at the start, or less: not NaN
  group.expect_calm({0, 1});
}

// One whose options are others. As the second: where a machine's own name stands for 127.0.1.1, its
// worker finds the lighthouse, but no other one could ever send to it.
TEST(Failures, WhoDoesNotFitIsRefused) {
  Group group(3, "", "--min-workers 2 --join-timeout 1", Group::kPublic);
  const bool has_network = network_host() != "127.0.0.1";  // else all are refused
  if (has_network) {
    group.start({0, 1});
    group.wait_for_commits(0, 5);
    group.start(2, "width=900");
    group.expect_error(2, "worker 2 is refused: its state, as a hash");
  }
  group.start(2, "", "127.0.0.1");
  group.expect_error(2, "worker 2 is refused: it listens on tcp://127.0.0.1:");
  EXPECT_THAT(group.output(2), HasSubstr("--elastic HOST:PORT"));
  if (!has_network) return;
  group.wait_for_commits(0, 5);
  group.finish();
  group.expect_calm({0, 1});
}

// While worker 0 is frozen, the lighthouse is started again, and worker 1 founds another run. What
// worker 0 has is not lost: it is asked to stop, as by a signal, so a trainer saves.
TEST(Failures, WhoIsRefusedAfterItHasTrainedStopsInGoodOrder) {
  Group group(2);
  group.start(0);
  group.wait_for_commits(0, 3);
  group.signal(0, SIGSTOP);
  group.kill_lighthouse();
  group.start_lighthouse();
  group.start(1);
  group.wait_for_commits(1, 3);
  group.signal(0, SIGCONT);
  EXPECT_EQ(group.wait(0), 75) << group.describe();
  EXPECT_THAT(group.log(0), HasSubstr("gives up because it is refused: its state belongs to run "));
}

// Random bytes to the port of a worker and of the lighthouse.
void send_noise(int port) {
  Random random(1);
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

// Somebody who reaches the ports, but has no key, or another one: says in the name of both workers
// what would end them. Without keys at least noise and what is no report does no harm. A worker with
// another key is told so.
TEST(Failures, AStrangerCannotEndTheRun) {
  for (const bool has_keys : {false, true}) {
    Group group(2, "", "--min-workers 2 --join-timeout 1", has_keys ? Group::kKey : Group::kNone);
    const TempFolder folder;
    write_curve_keys(folder.path("key"));
    group.start_all();
    group.wait_for_commits(0, 5);
    send_noise(std::stoi(rest_after("listens at tcp://127.0.0.1:", group.log(0))));
    send_noise(host_port(group.address()).port);
    const auto stranger = [&](const std::string& key) {
      return Stranger("tcp://" + group.address(), zmq::socket_type::dealer,
                      [&](zmq::socket_t& socket) {
                        if (!key.empty()) use_keys(socket, read_curve_keys(key));
                      });
    };
    Stranger plain = stranger(""), other = stranger(folder.path("key"));
    for (std::int64_t i = 0; has_keys && i < 20; ++i) {
      const int worker = static_cast<int>(i % 2);
      const std::string forged =
          to_text(Report{.beat = {.worker = worker, .process = 7, .outer_steps = 1 << 30},
                         .number = i,
                         .num_workers = 2});
      plain.send(forged);
      other.send(forged);
      pause(0.01);
    }
    group.wait_for_commits(0, 5);
    EXPECT_EQ(count(group.lighthouse_log(), " is back"), 0);
    EXPECT_TRUE(!has_keys || count(group.lighthouse_log(), "ignores") == 0);
    Stranger friend_of_the_family = stranger(has_keys ? group.key() : "");
    for (const char* const text : {"what is this?", "{}", ""}) friend_of_the_family.send(text);
    group.wait_until("the lighthouse hears it", [&] {
      return count(group.lighthouse_log(), "ignores what is no report") == 1;
    });
    group.finish();
    group.expect_calm({0, 1});
    if (!has_keys) continue;
    group.start(0, concat("patience=1.5 key=", one_word(folder.path("key"))));
    EXPECT_EQ(group.wait(0), 75);
    EXPECT_THAT(group.log(0), HasSubstr("does it have the same --elastic-key?"));
  }
}

// Kills at seeded random moments, sometimes two at once. One worker at least that has all committed
// steps stays alive, for nobody could heal from the dead.
TEST(Failures, AStorm) {
  const char* const text = std::getenv("LADDER_STORM_KILLS");
  const int num_kills = text == nullptr ? 20 : std::atoi(text);
  Group group(4, "round_timeout=0.6", "--join-timeout 0.6");
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
