// The variables of this process that concern one command.
#pragma once

#include <string_view>

#include "config/option_table.h"

namespace kvr::cmd {

// Those that begin with KVR_, without what is there for others: options of other commands only, of
// which one environment often holds all; KVR_TEST_*, which tests read; and what Kubernetes sets for
// each service of the namespace, here of one whose name begins with `kvr-`.
config::OptionTable::Environment VariablesFor(const config::OptionTable& table);

// KVR_X_SERVICE_HOST, KVR_X_SERVICE_PORT[_NAME], KVR_X_PORT=tcp://..., KVR_X_PORT_80_TCP[_PROTO,
// _PORT, _ADDR].
bool IsOfKubernetes(std::string_view name, std::string_view value);

}  // namespace kvr::cmd
