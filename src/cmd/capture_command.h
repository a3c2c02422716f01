// kvroute capture: records event streams of engines into a file.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kCaptureCommand;

}  // namespace kvr::cmd
