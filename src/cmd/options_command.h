// `kvroute options`: the reference page of every option.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kOptionsCommand;

}  // namespace kvr::cmd
