#include "step9_diloco/elastic/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "common/core/timer.hpp"
#include "step9_diloco/elastic/lighthouse.hpp"
#include "step9_diloco/elastic/no_name_servers.hpp"
#include "step9_diloco/elastic/records.hpp"
#include "step9_diloco/elastic/silent_listener.hpp"

namespace ladder {
namespace {

using ::testing::StartsWith;

HostPort local(int port) {
  return {"127.0.0.1", port};
}

// The traps that decision.hpp is built around. If a new libtorch behaves differently, this is where
// we want to hear of it.
TEST(Store, CompareSetOfTheLibtorchThatWeUse) {
  Lighthouse lighthouse(0, false, say_nothing);
  Store store(local(lighthouse.port()), 5);
  // A missing key, and an expected value: nothing happens, and the answer is what was expected.
  EXPECT_EQ(store.compare_set("missing", "open", "commit"), "open");
  EXPECT_EQ(store.get("missing"), std::nullopt);
  // A missing key, and nothing expected: it is created.
  EXPECT_EQ(store.compare_set("missing", "", "commit"), "commit");
  EXPECT_EQ(store.get("missing"), "commit");
  // A key that is there.
  EXPECT_EQ(store.compare_set("missing", "open", "abort"), "commit");
  EXPECT_EQ(store.compare_set("missing", "", "abort"), "commit");
  EXPECT_EQ(store.compare_set("missing", "commit", "abort"), "abort");
  EXPECT_EQ(store.get("missing"), "abort");
}

TEST(Store, SetsAndGets) {
  Lighthouse lighthouse(0, false, say_nothing);
  Store one(local(lighthouse.port()), 5), other(local(lighthouse.port()), 5);
  one.set("a", std::string("x\0y", 3));
  EXPECT_EQ(other.get("a"), std::string("x\0y", 3));
  EXPECT_EQ(other.get("b"), std::nullopt);
  EXPECT_TRUE(other.has_all({"a"}));
  EXPECT_FALSE(other.has_all({"a", "b"}));
}

TEST(Store, WhatOthersHaveSealedIsNotThere) {
  Lighthouse lighthouse(0, false, say_nothing);
  const CurveKeys keys = {"public", "secret"};
  std::string said;
  Store stranger(local(lighthouse.port()), 5);
  Store store(local(lighthouse.port()), 5, Seal(keys),
              [&](const std::string& message) { said += message + "\n"; });
  for (const char* key : {"a", "b"}) {
    stranger.set(key, "x");
    EXPECT_EQ(store.get(key), std::nullopt);
    EXPECT_FALSE(store.has_all({key}));
    EXPECT_EQ(store.compare_set(key, "x", "y"), "");
    EXPECT_EQ(stranger.get(key), "x");
    store.set(key, "z");
    EXPECT_EQ(store.compare_set(key, "z", "y"), "y");
    EXPECT_TRUE(store.has_all({key}));
  }
  EXPECT_THAT(said, StartsWith("ignores a in the store"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
}

TEST(Store, NobodyListens) {
  int port = 0;
  { port = Lighthouse(0, false, say_nothing).port(); }
  Store store(local(port), 5);
  const Timer timer;
  EXPECT_THROW(store.get("a"), StoreError);
  EXPECT_LT(timer.seconds(), 5);
}

TEST(Store, ALighthouseThatNeverAnswersCostsOneTimeout) {
  const SilentListener silent;
  const Timer timer;
  {
    Store store(local(silent.port()), 0.3);
    EXPECT_THROW(store.get("a"), StoreError);
    EXPECT_THROW(store.set("a", "b"), StoreError);
  }
  EXPECT_LT(timer.seconds(), 3);
}

std::int64_t num_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// A thread stays behind for a call that hangs, but not for each of many.
TEST(Store, CallsThatHangLeaveFewThreadsBehind) {
  std::optional<SilentListener> silent(std::in_place);
  const int port = silent->port();
  const std::int64_t before = num_threads();
  Store store(local(port), 0.02);
  for (int i = 0; i < 50; ++i) EXPECT_THROW(store.get("a"), StoreError);
  EXPECT_LE(num_threads() - before, 10);
  silent.reset();
  Lighthouse lighthouse(port, false, say_nothing);
  const Timer timer;
  std::optional<std::string> found;
  while (!found && timer.seconds() < 30) {
    try {
      found = store.get(kLighthouseKey);
    } catch (const StoreError&) {
    }
  }
  EXPECT_TRUE(found.has_value());
}

TEST(Store, ConnectsAgainToANewLighthouse) {
  std::optional<Lighthouse> lighthouse(std::in_place, 0, false, say_nothing);
  const int port = lighthouse->port();
  Store store(local(port), 5);
  const std::string first = store.get(kLighthouseKey).value();
  lighthouse.reset();
  EXPECT_THROW(store.get(kLighthouseKey), StoreError);
  lighthouse.emplace(port, false, say_nothing);
  EXPECT_NE(store.get(kLighthouseKey).value(), first);
}

// Whoever reaches the network of this machine does not reach the lighthouse.
TEST(Store, ALighthouseListensOnTheLoopbackOnly) {
  Lighthouse lighthouse(0, false, say_nothing);
  std::ifstream table("/proc/net/tcp");
  int num_found = 0;
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, ":%04X", lighthouse.port());
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, local_address, remote, state;
    words >> number >> local_address >> remote >> state;
    if (state != "0A" || !local_address.ends_with(wanted)) continue;  // 0A: listens
    ++num_found;
    EXPECT_EQ(local_address.substr(0, 8), "0100007F");
  }
  EXPECT_EQ(num_found, 1);
}

// The first to end must not leave the log silent for good, nor loud while the other needs it
// silent.
TEST(NoNameServers, OfTwoAtOnceTheLastRestoresTheLog) {
  const auto pause = std::chrono::milliseconds(1);
  while (FLAGS_caffe2_log_level == c10::GLOG_ERROR)  // another test's connection is about to end
    std::this_thread::sleep_for(pause);
  const int before = FLAGS_caffe2_log_level;
  auto first = std::make_unique<NoNameServers>(), second = std::make_unique<NoNameServers>();
  first.reset();
  EXPECT_EQ(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
  second.reset();
  EXPECT_EQ(FLAGS_caffe2_log_level, before);
}

}  // namespace
}  // namespace ladder
