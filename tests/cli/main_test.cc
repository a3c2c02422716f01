#include <csignal>

#include <gtest/gtest.h>

#include "support/process.h"

namespace kvr::support {
namespace {

TEST(Kvroute, PrintsItsVersion) {
  const auto done = RunKvroute({"--version"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_TRUE(done.out.starts_with("kvroute 0.")) << done.out;
  EXPECT_EQ(done.err, "");
}

TEST(Kvroute, HelpNamesTheCommands) {
  const auto done = RunKvroute({"--help"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_NE(done.out.find("usage: kvroute COMMAND"), std::string::npos) << done.out;
}

TEST(Kvroute, UnknownCommandIsAUsageError) {
  const auto done = RunKvroute({"frobnicate"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(done.err, "kvroute: no command `frobnicate`; `kvroute --help` lists them\n");
}

TEST(Kvroute, NoCommandIsAUsageErrorOfOneLine) {
  const auto done = RunKvroute({});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_EQ(done.err, "kvroute: no command given; `kvroute --help` lists them\n");
}

TEST(Kvroute, AMisspeltFlagIsNamedBeforeWhatIsMissing) {
  const auto done = RunKvroute({"replay", "--polices", "kv"});  // and no TRACE
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_NE(done.err.find("unknown option `--polices`; did you mean `--policies`?"),
            std::string::npos)
      << done.err;
  // A word behind an option that takes one is its value.
  const auto value = RunKvroute({"hash", "--salt", "--polices", "--block-size", "1", "1"});
  EXPECT_EQ(value.exit_code, 0) << value.err;
}

}  // namespace
}  // namespace kvr::support
