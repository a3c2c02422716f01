// The name of a thread, for those who look at the process from outside.
#pragma once

#include <string_view>

namespace kvr {

// Names the calling thread for debuggers and `top`; cut to the kernel's 15 characters.
void SetThreadName(std::string_view name);

}  // namespace kvr
