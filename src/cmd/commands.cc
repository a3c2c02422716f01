#include "cmd/agent_command.h"
#include "cmd/capture_command.h"
#include "cmd/command.h"
#include "cmd/decode_command.h"
#include "cmd/gateway_command.h"
#include "cmd/hash_command.h"
#include "cmd/indexer_command.h"
#include "cmd/mock_command.h"
#include "cmd/options_command.h"
#include "cmd/replay_command.h"

namespace kvr::cmd {

const std::vector<const Command*>& Commands() {
  static const std::vector<const Command*> commands = {
      &kGatewayCommand, &kIndexerCommand, &kAgentCommand, &kMockCommand,    &kReplayCommand,
      &kDecodeCommand,  &kCaptureCommand, &kHashCommand,  &kOptionsCommand,
  };
  return commands;
}

}  // namespace kvr::cmd
