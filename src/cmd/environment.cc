#include "cmd/environment.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "cmd/agent_config.h"
#include "cmd/gateway_config.h"
#include "cmd/indexer_config.h"

namespace kvr::cmd {
namespace {

template <typename Config>
void AddVariables(std::set<std::string>& names) {
  Config config;
  config::OptionTable table;
  config.Bind(table);
  for (std::string& name : table.Variables())
    names.insert(std::move(name));
}

// "80_TCP", "80_TCP_PROTO", ...
bool IsPortOfService(std::string_view rest) {
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0) return false;
  rest.remove_prefix(digits);
  for (const std::string_view protocol : {"_TCP", "_UDP", "_SCTP"}) {
    if (!rest.starts_with(protocol)) continue;
    const std::string_view end = rest.substr(protocol.size());
    return end.empty() || end == "_PROTO" || end == "_PORT" || end == "_ADDR";
  }
  return false;
}

bool HasScheme(std::string_view value) {
  return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

}  // namespace

bool IsOfKubernetes(std::string_view name, std::string_view value) {
  constexpr std::string_view kServicePort = "_SERVICE_PORT";
  constexpr std::string_view kPort = "_PORT";
  if (name.ends_with("_SERVICE_HOST") || name.ends_with(kServicePort)) return true;
  if (name.find("_SERVICE_PORT_") != name.npos) return true;
  if (name.ends_with(kPort) && HasScheme(value)) return true;
  for (std::size_t at = name.find("_PORT_"); at != name.npos; at = name.find("_PORT_", at + 1)) {
    if (IsPortOfService(name.substr(at + kPort.size() + 1))) return true;
  }
  return false;
}

config::OptionTable::Environment VariablesFor(const config::OptionTable& table) {
  std::set<std::string> others;
  AddVariables<GatewayConfig>(others);
  AddVariables<IndexerConfig>(others);
  AddVariables<AgentConfig>(others);
  for (const std::string& own : table.Variables())
    others.erase(own);
  auto variables = config::KvrEnvironment();
  std::erase_if(variables, [&others](const auto& variable) {
    const auto& [name, value] = variable;
    return others.contains(name) || name.starts_with("KVR_TEST_") || IsOfKubernetes(name, value);
  });
  return variables;
}

}  // namespace kvr::cmd
