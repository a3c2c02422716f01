// kvroute gateway: an OpenAI-compatible proxy that routes by cache and load.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kGatewayCommand;

}  // namespace kvr::cmd
