#include "step9_diloco/elastic/elastic_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/core/check.hpp"

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ElasticOptions, WhatCannotBeIsRefused) {
  const ElasticOptions good = {.lighthouse = "127.0.0.1:29400", .worker = 1, .num_workers = 3};
  check_elastic(good);
  const auto expect_refused = [&](const auto& change, const char* message) {
    ElasticOptions options = good;
    change(options);
    EXPECT_THAT([&] { check_elastic(options); }, ThrowsMessage<UsageError>(HasSubstr(message)));
  };
  using O = ElasticOptions;
  expect_refused([](O& o) { o.lighthouse = "localhost"; }, "must be HOST:PORT");
  expect_refused([](O& o) { o.lighthouse = ":1"; }, "must be HOST:PORT");
  expect_refused([](O& o) { o.lighthouse = "localhost:70000"; }, "must be HOST:PORT");
  expect_refused([](O& o) { o.lighthouse = "localhost:1x"; }, "must be HOST:PORT");
  expect_refused([](O& o) { o.lighthouse = "[::1]:5"; }, "use IPv4 only");
  expect_refused([](O& o) { o.lighthouse = "::1:5"; }, "use IPv4 only");
  expect_refused([](O& o) { o.lighthouse = "10.0.0.1:1"; }, "need --elastic-key");
  expect_refused([](O& o) { o.worker = 3; }, "from 0 to 2");
  expect_refused([](O& o) { o.worker = -1; }, "from 0 to 2");
  expect_refused([](O& o) { o.num_workers = 0; }, "at least 1");
  expect_refused([](O& o) { o.min_workers = 4; }, "from 1 to the 3");
  expect_refused([](O& o) { o.min_workers = 0; }, "from 1 to the 3");
  expect_refused([](O& o) { o.join_timeout_s = 0; }, "--join-timeout is 0");
  expect_refused([](O& o) { o.round_timeout_s = -1; }, "--round-timeout is -1");
  expect_refused([](O& o) { o.patience_s = 1e9; }, "--patience is");
  expect_refused([](O& o) { o.patience_s = o.join_timeout_s; }, "of --join-timeout");
  ElasticOptions remote = good;
  remote.lighthouse = "10.0.0.1:1";
  remote.key_file = "key";
  check_elastic(remote);
}

TEST(ElasticOptions, HostsOfThisMachineOnly) {
  EXPECT_EQ(host_port("a.b:5").host, "a.b");
  EXPECT_EQ(host_port("a.b:5").port, 5);
  EXPECT_TRUE(is_loopback("127.0.3.4"));
  EXPECT_FALSE(is_loopback("12.7.0.1"));
}

}  // namespace
}  // namespace ladder
