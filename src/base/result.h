// A value, or the reason there is none.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

#include "base/error.h"

namespace kvr {

// tl::expected with one addition: ignoring it is a warning. Return early with KVR_TRY; no monadic
// chains and no .value(), which throws.
template <typename T, typename E = Error>
class [[nodiscard]] Result : public tl::expected<T, E> {
  using Base = tl::expected<T, E>;

 public:
  using Base::Base;
  Result(Base base) : Base(std::move(base)) {}  // NOLINT(google-explicit-constructor)
};

// return Fail(ErrorCode::kNotFound, "no worker 7");
inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace kvr

#define KVR_CONCAT_IMPL(a, b) a##b
#define KVR_CONCAT(a, b) KVR_CONCAT_IMPL(a, b)
#define KVR_TRY_IMPL(tmp, lhs, expr)                            \
  auto tmp = (expr);                                            \
  if (!tmp) return tl::make_unexpected(std::move(tmp).error()); \
  lhs = *std::move(tmp)
// KVR_TRY(auto x, F()): returns F()'s error from this function, else binds its value to x.
#define KVR_TRY(lhs, expr) KVR_TRY_IMPL(KVR_CONCAT(kvr_try_, __COUNTER__), lhs, expr)

#define KVR_TRY_VOID_IMPL(tmp, expr) \
  if (auto tmp = (expr); !tmp) return tl::make_unexpected(std::move(tmp).error())
// KVR_TRY_VOID(F()): returns F()'s error from this function, else goes on.
#define KVR_TRY_VOID(expr) KVR_TRY_VOID_IMPL(KVR_CONCAT(kvr_try_, __COUNTER__), expr)
