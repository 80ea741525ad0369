#include "common/core/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ladder {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names(const TraceLog& log) {
  std::vector<std::string> names;
  for (const TracedSpan& span : log.spans()) names.emplace_back(span.name);
  return names;
}

TEST(Trace, SpansNest) {
  TraceLog log;
  const TraceScope scope(&log);
  {
    const Span outer("outer");
    EXPECT_EQ(log.innermost(), &outer);
    const Span inner(std::string("inner"), {"microbatch", 3}, {"chunk", 1});
    EXPECT_EQ(log.innermost(), &inner);
  }
  EXPECT_EQ(log.innermost(), nullptr);
  ASSERT_THAT(names(log), ElementsAre("inner", "outer"));
  const TracedSpan &inner = log.spans()[0], &outer = log.spans()[1];
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_STREQ(inner.first.name, "microbatch");
  EXPECT_EQ(inner.first.value, 3);
  EXPECT_STREQ(inner.second.name, "chunk");
  EXPECT_EQ(inner.second.value, 1);
  EXPECT_EQ(outer.first.name, nullptr);
}

TEST(Trace, ASpanMayGoOnUnderAnotherName) {
  TraceLog log;
  const TraceScope scope(&log);
  {
    Span span("forward", {"microbatch", 2});
    span.next("backward");
    EXPECT_STREQ(log.innermost()->name(), "backward");
  }
  ASSERT_THAT(names(log), ElementsAre("forward", "backward"));
  EXPECT_EQ(log.spans()[0].end_ns, log.spans()[1].begin_ns);
  EXPECT_EQ(log.spans()[1].first.value, 2);
}

// A mark ends with the span around it, or where the next mark begins; spans fit into it.
TEST(Trace, MarksFollowOneAnother) {
  TraceLog log;
  const TraceScope scope(&log);
  log.mark("nowhere");
  {
    const Span backward("backward");
    log.mark("head");
    { const Span bucket("bucket"); }
    log.mark("block");
  }
  ASSERT_THAT(names(log), ElementsAre("bucket", "head", "block", "backward"));
  EXPECT_LE(log.spans()[1].begin_ns, log.spans()[0].begin_ns);
  EXPECT_GE(log.spans()[1].end_ns, log.spans()[0].end_ns);
  EXPECT_EQ(log.spans()[1].end_ns, log.spans()[2].begin_ns);
  EXPECT_EQ(log.spans()[2].end_ns, log.spans()[3].end_ns);
}

TEST(Trace, NobodyListensOutsideOfAScope) {
  TraceLog log;
  { const Span span("before"); }
  EXPECT_EQ(TraceLog::current(), nullptr);
  {
    const TraceScope scope(&log);
    EXPECT_EQ(TraceLog::current(), &log);
    const TraceScope nobody(nullptr);
    const Span span("unheard");
  }
  EXPECT_EQ(TraceLog::current(), nullptr);
  EXPECT_EQ(log.num_events(), 0);
}

TEST(Trace, ALogHasAnEnd) {
  TraceLog log(/*max_events=*/3);
  const TraceScope scope(&log);
  for (int i = 0; i < 2; ++i) const Span span("span");
  log.add(TracedOperation{});
  log.add(TracedOperation{});
  { const Span span("one too many"); }
  EXPECT_EQ(log.num_events(), 3);
  EXPECT_EQ(log.num_dropped(), 2);
  log.close();
  { const Span span("too late"); }
  EXPECT_EQ(log.num_events(), 3);
  EXPECT_EQ(log.num_dropped(), 2);
}

TEST(Trace, EqualTextsAreKeptOnce) {
  TraceLog log;
  std::string text = "block0";
  const char* const kept = log.keep(text);
  text = "block1";
  EXPECT_STREQ(kept, "block0");
  EXPECT_EQ(log.keep("block0"), kept);
  EXPECT_NE(log.keep("block1"), kept);
}

}  // namespace
}  // namespace ladder
