// Assertions for what only our own bug can cause. On in every build; they print and abort.
// Never use them on bytes that came from outside.
#pragma once

namespace kvr {

// Prints "file:line: check failed: text" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* text);

}  // namespace kvr

#define KVR_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::kvr::CheckFailed(__FILE__, __LINE__, #condition))

// For checks that cost as much as the work they guard: off where NDEBUG is defined.
#ifdef NDEBUG
#define KVR_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define KVR_DCHECK(condition) KVR_CHECK(condition)
#endif
