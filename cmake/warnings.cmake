set(KVR_WARNINGS
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wold-style-cast -Wcast-qual -Wformat=2 -Wimplicit-fallthrough
  -Wmissing-declarations -Wdouble-promotion -Wextra-semi -Wundef -Wvla -Wsuggest-override)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND KVR_WARNINGS -Wthread-safety -Wthread-safety-beta -Wrange-loop-analysis)
else()
  list(APPEND KVR_WARNINGS -Wduplicated-cond -Wlogical-op)
  # g++ 12 at -O2 takes the frame allocation of asio's coroutines for a mismatch.
  list(APPEND KVR_WARNINGS -Wno-mismatched-new-delete)
endif()
if(KVR_WERROR)
  list(APPEND KVR_WARNINGS -Werror)
endif()
