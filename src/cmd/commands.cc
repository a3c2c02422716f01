#include "cmd/command.h"
#include "cmd/hash_command.h"

namespace kvr::cmd {

const std::vector<const Command*>& Commands() {
  static const std::vector<const Command*> commands = {
      &kHashCommand,
  };
  return commands;
}

}  // namespace kvr::cmd
