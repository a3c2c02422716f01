// `kvroute agent`
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kAgentCommand;

}  // namespace kvr::cmd
