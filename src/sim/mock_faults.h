// What a test can make a mock engine do wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "openai/api_error.h"
#include "sim/mock_engine.h"

namespace kvr::sim {

// Faults that a test can ask a mock engine for. Fields of POST /mock/fault, all optional:
//
//   rank              event faults concern this rank only; else all
//   drop_messages     the next so many event messages never reach subscribers ...
//   keep_for_replay   ... but the replay socket still has them (default true)
//   repeat_messages   the next so many event messages go out twice
//   swap_messages     the next so many go out behind the one after them
//   foreign_messages  at once, so many event messages of a rank that there is not
//   garbage_messages  at once, so many things on the event socket that are no messages
//   event_delay_ms    event messages from now on go out so much later
//   hold_events       event messages wait in their queue, or go out again
//   replay_silent     the replay socket stops, or resumes, answering
//   cut_replays       the next so many answers of the replay socket break off ...
//   cut_after         ... after so many messages (default 1)
//   error_requests    the next so many completion requests are answered ...
//   error_status      ... with this status (default 503)
//   die_requests      the next so many completion requests break off ...
//   die_after_tokens  ... once they have sent so many tokens (default 1)
//   restart           true: as a new process, see MockEngine::Restart
//   keep_numbers      ... whose messages go on with the numbers of the old one (default false)
//
// Counts replace what is left of earlier ones.
class MockFaults {
 public:
  // Reads a body and does what it says. Unknown fields are refused, so that a misspelt fault does
  // not pass for one that had no effect.
  Result<void, openai::ApiError> Apply(std::string_view body, MockEngine& engine);

  // Counts a completion request: the status to refuse it with.
  [[nodiscard]] std::optional<int> TakeError();
  // Counts a completion request: the tokens after which it breaks off.
  [[nodiscard]] std::optional<std::uint32_t> TakeDeath();

 private:
  std::uint64_t error_requests_ = 0;
  int error_status_ = 503;
  std::uint64_t die_requests_ = 0;
  std::uint32_t die_after_tokens_ = 1;
};

}  // namespace kvr::sim
