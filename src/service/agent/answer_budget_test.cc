#include "service/agent/answer_budget.h"

#include <memory>
#include <utility>

#include <gtest/gtest.h>

namespace kvr::service {
namespace {

TEST(AnswerBudget, SharesAreGivenBackAndALoneAnswerAlwaysFits) {
  AnswerBudget budget(10);
  {
    const auto lone = budget.Take(25);
    ASSERT_TRUE(lone);
    EXPECT_FALSE(budget.Take(1)) << "beyond all";
  }
  EXPECT_EQ(budget.taken(), 0u);
  auto first = budget.Take(6);
  ASSERT_TRUE(first);
  EXPECT_FALSE(budget.Take(5));
  EXPECT_TRUE(budget.Take(4));
  const AnswerBudget::Share moved = *std::move(first);
  first.reset();
  EXPECT_EQ(budget.taken(), 6u) << "given back once, by the last";
}

TEST(AnswerBudget, AShareOutlivesIt) {
  auto budget = std::make_unique<AnswerBudget>(10);
  const auto share = budget->Take(1);
  budget.reset();
  EXPECT_TRUE(share);
}

}  // namespace
}  // namespace kvr::service
