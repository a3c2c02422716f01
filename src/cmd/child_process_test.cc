#include "cmd/child_process.h"

#include <array>
#include <csignal>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(ChildProcess, EndsWithItsParentHoweverThatEnds) {
  // The child of the child holds the only writing end, so the pipe ends with it.
  std::array<int, 2> alive{};
  ASSERT_EQ(pipe(alive.data()), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto child = ChildProcess::Start({"/bin/sh", "-c", "echo up; exec sleep 1000"});
    const bool up = child && child->ReadLine(Millis{10'000}).has_value();
    kill(getpid(), up ? SIGKILL : SIGABRT);
  }
  close(alive[1]);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  pollfd watch{alive[0], POLLIN, 0};
  EXPECT_EQ(poll(&watch, 1, 20'000), 1) << "the child is still there";
  char byte = 0;
  EXPECT_EQ(read(alive[0], &byte, 1), 0);
  close(alive[0]);
}

}  // namespace
}  // namespace kvr::cmd
