#include "cmd/child_process.h"

#include <utility>

#include <gtest/gtest.h>

namespace kvr::cmd {
namespace {

TEST(ChildProcess, ReadsLinesAndTheExitCode) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", "echo one; echo two; exit 3"});
  ASSERT_TRUE(child);
  EXPECT_EQ(*child->ReadLine(Millis{10'000}), "one");
  EXPECT_EQ(*child->ReadLine(Millis{10'000}), "two");
  const auto end = child->ReadLine(Millis{10'000});
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, ErrorCode::kUnavailable);
}

TEST(ChildProcess, SaysWhatItCouldNotStart) {
  const auto child = ChildProcess::Start({"/no/such/program"});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().message.find("/no/such/program"), std::string::npos);
}

TEST(ChildProcess, TimesOutOnASilentChild) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", "read line"});
  ASSERT_TRUE(child);
  const auto line = child->ReadLine(Millis{1});
  ASSERT_FALSE(line);
}

TEST(ChildProcess, TerminatesThenKills) {
  auto polite =
      ChildProcess::Start({"/bin/sh", "-c", "trap 'exit 0' TERM; echo up; while :; do :; done"});
  ASSERT_TRUE(polite);
  ASSERT_EQ(*polite->ReadLine(Millis{10'000}), "up");
  EXPECT_EQ(polite->Terminate(Millis{10'000}), 0);
  EXPECT_EQ(polite->Terminate(Millis{10'000}), 0);

  auto deaf = ChildProcess::Start({"/bin/sh", "-c", "trap '' TERM; echo up; while :; do :; done"});
  ASSERT_TRUE(deaf);
  ASSERT_EQ(*deaf->ReadLine(Millis{10'000}), "up");
  ChildProcess moved = std::move(*deaf);
  EXPECT_EQ(moved.Terminate(Millis{1}), 128 + 9);
}

}  // namespace
}  // namespace kvr::cmd
