#include "sched/eligibility.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::sched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr WorkerId kOne{1};
constexpr WorkerId kTwo{2};
constexpr WorkerId kThree{3};

const std::vector<std::string> kFast{"fast", "zone=a"};

// Worker 1 with one rank, worker 2 with two.
std::vector<Host> Hosts() {
  return {{.rank = {kOne, 0}, .taints = kFast}, {.rank = {kTwo, 0}}, {.rank = {kTwo, 1}}};
}

class EligibilityTest : public testing::Test {
 protected:
  std::vector<Host> hosts_ = Hosts();
  std::vector<std::uint32_t> eligible_;

  Error Refused(const Constraints& constraints) {
    const auto result = FindEligible(constraints, hosts_, eligible_);
    EXPECT_FALSE(result);
    EXPECT_TRUE(eligible_.empty());
    return result ? Error{} : result.error();
  }
};

TEST_F(EligibilityTest, EveryRankIsACandidate_S36) {
  std::vector<Host> hosts;
  for (std::uint64_t worker = 0; worker < 2; ++worker) {
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      hosts.push_back({.rank = {WorkerId{worker}, rank}});
  }
  ASSERT_TRUE(FindEligible({}, hosts, eligible_));
  EXPECT_EQ(eligible_.size(), 8u);
}

TEST_F(EligibilityTest, NoWorkers_S2) {
  hosts_.clear();
  EXPECT_EQ(Refused({}).code, ErrorCode::kUnavailable);
}

TEST_F(EligibilityTest, AllOverloadedIsNotTheSameAsNobody_S3) {
  for (Host& host : hosts_)
    host.overloaded = true;
  const Error error = Refused({});
  EXPECT_EQ(error.code, ErrorCode::kOverloaded);
  EXPECT_THAT(error.message, HasSubstr("3 overloaded"));
}

TEST_F(EligibilityTest, OverloadedRanksThatCouldNotServeAnywayDoNotCount) {
  for (Host& host : hosts_) {
    host.overloaded = true;
    host.available = false;
  }
  EXPECT_EQ(Refused({}).code, ErrorCode::kUnavailable);
}

TEST_F(EligibilityTest, PinOutsideTheAllowListComesBeforeEverything_S4) {
  for (Host& host : hosts_)
    host.overloaded = true;
  const std::vector<WorkerId> allowed{kTwo};
  const Error error = Refused({.allowed = allowed, .pinned = Pin{kOne, 0}});
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("pinned worker 1 rank 0 is not among the allowed"));
}

TEST_F(EligibilityTest, PinToAnOverloadedWorker_S5) {
  hosts_[0].overloaded = true;
  const Error error = Refused({.pinned = Pin{kOne, 0}});
  EXPECT_EQ(error.code, ErrorCode::kOverloaded);
  EXPECT_THAT(error.message, HasSubstr("pinned worker 1 rank 0 is overloaded"));
}

TEST_F(EligibilityTest, PinThatCannotBeServed_S6) {
  const std::vector<std::string_view> fast{"fast"};
  EXPECT_EQ(Refused({.pinned = Pin{kOne, 7}}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(Refused({.pinned = Pin{kThree, 0}}).code, ErrorCode::kUnavailable);
  EXPECT_EQ(Refused({.pinned = Pin{kTwo, 0}, .required_taints = fast}).code,
            ErrorCode::kUnavailable);
  hosts_[0].available = false;
  EXPECT_EQ(Refused({.pinned = Pin{kOne, 0}}).code, ErrorCode::kUnavailable);
}

TEST_F(EligibilityTest, PinLeavesOneCandidate_S7) {
  ASSERT_TRUE(FindEligible({.pinned = Pin{kTwo, 1}}, hosts_, eligible_));
  EXPECT_THAT(eligible_, ElementsAre(2));
  // The taint multiplier does not apply to it.
  const std::vector<PreferredTaint> preferred{{"fast", 1.0}};
  EXPECT_EQ(PreferredWeight({.pinned = Pin{kOne, 0}, .preferred_taints = preferred}, hosts_[0]),
            std::nullopt);
}

TEST_F(EligibilityTest, PinWithoutRankNeedsAWorkerWithOne) {
  ASSERT_TRUE(FindEligible({.pinned = Pin{kOne, {}}}, hosts_, eligible_));
  EXPECT_THAT(eligible_, ElementsAre(0));
  EXPECT_THAT(Refused({.pinned = Pin{kTwo, {}}}).message, HasSubstr("name the rank too"));
}

TEST_F(EligibilityTest, AllowList) {
  const std::vector<WorkerId> allowed{kTwo, kThree};
  ASSERT_TRUE(FindEligible({.allowed = allowed}, hosts_, eligible_));
  EXPECT_THAT(eligible_, ElementsAre(1, 2));
  // An empty list is a list: nobody is on it.
  EXPECT_THAT(Refused({.allowed = std::span<const WorkerId>{}}).message,
              HasSubstr("3 not_allowed"));
}

TEST_F(EligibilityTest, ExcludedRanksAreSkippedUnlessPinned) {
  const std::vector<Rank> failed{{kTwo, 0}};
  ASSERT_TRUE(FindEligible({.excluded = failed}, hosts_, eligible_));
  EXPECT_THAT(eligible_, ElementsAre(0, 2));
  ASSERT_TRUE(FindEligible({.pinned = Pin{kTwo, 0}, .excluded = failed}, hosts_, eligible_));
  EXPECT_THAT(eligible_, ElementsAre(1));
  const std::vector<Rank> all{{kOne, 0}, {kTwo, 0}, {kTwo, 1}};
  EXPECT_THAT(Refused({.excluded = all}).message, HasSubstr("3 excluded"));
}

TEST_F(EligibilityTest, RequiredTaintsMustAllBeThere) {
  const std::vector<std::string_view> both{"fast", "zone=a"};
  ASSERT_TRUE(FindEligible({.required_taints = both}, hosts_, eligible_));
  EXPECT_THAT(eligible_, ElementsAre(0));
  const std::vector<std::string_view> other{"fast", "zone=b"};
  const Error error = Refused({.required_taints = other});
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("3 missing_taint"));
}

// The order of the checks: each row fails everything from its check on.
TEST_F(EligibilityTest, FirstFailureWins) {
  const std::vector<WorkerId> allowed{kOne};
  const std::vector<Rank> excluded{{kOne, 0}};
  const std::vector<std::string_view> slow{"slow"};
  Host host{.rank = {kOne, 0}, .available = false, .overloaded = true, .taints = kFast};
  Constraints constraints{.excluded = excluded, .required_taints = slow};
  EXPECT_EQ(Check({.allowed = std::span<const WorkerId>{}, .excluded = excluded}, host),
            Refusal::kNotAllowed);
  EXPECT_EQ(Check({.allowed = allowed, .pinned = Pin{kTwo, 0}}, host), Refusal::kNotPinned);
  EXPECT_EQ(Check(constraints, host), Refusal::kExcluded);
  constraints.excluded = {};
  EXPECT_EQ(Check(constraints, host), Refusal::kUnavailable);
  host.available = true;
  EXPECT_EQ(Check(constraints, host), Refusal::kMissingTaint);
  constraints.required_taints = {};
  EXPECT_EQ(Check(constraints, host), Refusal::kOverloaded);
  host.overloaded = false;
  EXPECT_EQ(Check(constraints, host), Refusal::kNone);
}

TEST_F(EligibilityTest, PreferredWeightSumsWhatMatches) {
  const std::vector<PreferredTaint> opposed{{"fast", 0.85}, {"zone=a", -0.85}, {"slow", 9}};
  EXPECT_EQ(PreferredWeight({}, hosts_[0]), std::nullopt);                            // S32
  EXPECT_EQ(PreferredWeight({.preferred_taints = opposed}, hosts_[1]), 0.0);          // S30
  EXPECT_DOUBLE_EQ(*PreferredWeight({.preferred_taints = opposed}, hosts_[0]), 0.0);  // S31
}

}  // namespace
}  // namespace kvr::sched
