// kvroute replay: a recorded trace against running routers, policies side by side.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kReplayCommand;

}  // namespace kvr::cmd
