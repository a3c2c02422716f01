// kvroute hash: the block and sequence hashes of token ids, as engines' events carry them.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

extern const Command kHashCommand;

}  // namespace kvr::cmd
