// kvroute mock: engines without a GPU.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

// Engines without a GPU, several in one process.
extern const Command kMockCommand;

}  // namespace kvr::cmd
