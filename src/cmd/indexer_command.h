// kvroute indexer: the index behind an HTTP API.
#pragma once

#include "cmd/command.h"

namespace kvr::cmd {

// kvroute indexer: the index behind an HTTP API.
extern const Command kIndexerCommand;

}  // namespace kvr::cmd
