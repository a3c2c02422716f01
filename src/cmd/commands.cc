#include "cmd/command.h"

namespace kvr::cmd {

const std::vector<const Command*>& Commands() {
  static const std::vector<const Command*> commands = {};
  return commands;
}

}  // namespace kvr::cmd
