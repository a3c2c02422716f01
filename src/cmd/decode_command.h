// kvroute decode: what payload frames of engines say, and what of it an index would take.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kDecodeCommand;

}  // namespace kvr::cmd
