// Watches a server-sent event stream of an engine while it is relayed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "openai/usage.h"

namespace kvr::openai {

// Feed it every piece of the body in order and pass on what it returns: the same bytes in the same
// order, but whole lines only, so that a stream that breaks off never ends inside one. The stream
// is over at `[DONE]`: after it comes the empty line that ends an event, and nothing more, whatever
// the engine still sends. Where the pieces are cut changes nothing.
//
// Not thread-safe. Memory: at most `line_bytes_max` and a parser for that much. A longer line is
// passed on unread and counted.
class StreamScanner {
 public:
  struct Options {
    std::size_t line_bytes_max = 1u << 20;
  };

  explicit StreamScanner(const Options& options);
  ~StreamScanner();
  StreamScanner(const StreamScanner&) = delete;
  StreamScanner& operator=(const StreamScanner&) = delete;

  // What may be passed on now; may be empty. Valid until the next call, borrows from `piece`.
  [[nodiscard]] std::string_view Feed(std::string_view piece);
  // The held beginning of an unfinished line; to be passed on when the stream ended well.
  [[nodiscard]] std::string_view Rest();

  // A chunk with output was seen: text, reasoning, tool calls or token ids. A chunk that only
  // names the role is none.
  [[nodiscard]] bool saw_output() const { return output_chunks_ > 0; }
  [[nodiscard]] std::uint64_t output_chunks() const { return output_chunks_; }
  // As exactly as the stream tells: plausible usage, else token ids, else one a chunk.
  [[nodiscard]] std::uint64_t output_tokens() const;
  [[nodiscard]] const std::optional<Usage>& usage() const { return usage_; }
  // Choices that were given a reason to end.
  [[nodiscard]] std::uint64_t finished_choices() const { return finished_choices_; }
  [[nodiscard]] bool saw_done() const { return saw_done_; }    // data: [DONE]
  [[nodiscard]] bool saw_error() const { return saw_error_; }  // a chunk with `error`
  // What was passed on ends between two events.
  [[nodiscard]] bool between_events() const { return between_events_ && !skipping_; }
  [[nodiscard]] std::uint64_t unread_lines() const { return unread_lines_; }  // too long
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }  // data that is no JSON
  // Reports of usage that are not plausible; they are passed on and otherwise ignored.
  [[nodiscard]] std::uint64_t implausible() const { return implausible_; }

 private:
  struct Parser;

  std::string_view Hold(std::string_view rest, std::string_view whole);
  std::string_view Last(std::string_view lines);
  std::size_t ReadLines(std::string_view lines);
  void EndLine(std::string_view line);
  void ReadData(std::string_view data);

  const Options options_;
  std::unique_ptr<Parser> parser_;
  std::string held_;           // the unfinished line
  std::string out_;            // what Feed returned, when it had to be put together
  bool skipping_ = false;      // inside a line that is too long
  bool after_return_ = false;  // the last byte was '\r': a '\n' belongs to it
  bool between_events_ = true;
  bool saw_done_ = false;
  bool saw_error_ = false;
  std::uint64_t output_chunks_ = 0;
  std::uint64_t output_ids_ = 0;
  std::uint64_t finished_choices_ = 0;
  std::uint64_t unread_lines_ = 0;
  std::uint64_t malformed_ = 0;
  std::uint64_t implausible_ = 0;
  std::optional<Usage> usage_;
};

}  // namespace kvr::openai
