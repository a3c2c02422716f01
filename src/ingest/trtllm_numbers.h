// Makes a numbered stream of the event lists that TensorRT-LLM hands out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/list_cutter.h"
#include "wire/event_decoder.h"

namespace kvr::ingest {

// Asking for /kv_cache_events drains the engine's buffer: a list that is lost on the way is lost
// for good, and so are events that found the buffer full. What is left to see it by is `event_id`,
// which counts per attention rank from 0. Each message here is a part of a list that is of one rank
// and without a hole, under a number of its own; where events are missing a number is left out, so
// that whoever follows the numbers sees a gap. A long list becomes several messages, each within
// the limits of a decoder. Lists are taken as they come in; of one no more is kept than a message
// and an event.
class TrtllmNumbers {
 public:
  struct Message {
    std::uint64_t sequence = 0;
    std::string payload;   // a JSON list of events of one rank
    bool restart = false;  // the engine counts anew: it is another process
  };

  // What a decoder takes of an event that is alone in its message.
  static constexpr std::size_t kEventBytesMax = wire::DecodeLimits{}.json_bytes_max - 2;

  // An event of more bytes stands in its message as `null`.
  explicit TrtllmNumbers(std::size_t event_bytes_max = kEventBytesMax);
  ~TrtllmNumbers();
  TrtllmNumbers(const TrtllmNumbers&) = delete;
  TrtllmNumbers& operator=(const TrtllmNumbers&) = delete;

  // Appends the messages that the next bytes of a list complete, in order; one event alone is a
  // list too. Events that are no objects, or no JSON, stay with those before them, and may have the
  // ids that are missing there. False when what came is no list: see Lose.
  bool Take(std::string_view bytes, std::vector<Message>& messages);
  // The list ends here: appends its last message. False when it lacks its end: see Lose.
  bool End(std::vector<Message>& messages);
  // The rest of a list is lost, or all of it: appends what had come, and an empty message behind a
  // gap, so that the loss shows although the engine may be silent from now on. Lists that are lost
  // one after the other are one loss. Before any message only the ids tell whether something is
  // missing.
  void Lose(std::vector<Message>& messages);

  // Events that have come to their end, of all lists, readable or not.
  [[nodiscard]] std::uint64_t events() const { return events_; }
  // Those of them that were too long.
  [[nodiscard]] std::uint64_t events_too_long() const { return events_too_long_; }

 private:
  struct Run;
  struct Reader;

  void TakeItem(std::vector<Message>& messages);
  // Hands the run on, if there is one.
  void Flush(std::vector<Message>& messages);
  void Number(Message message, std::vector<Message>& messages);
  // Notes that the events from `first` to `last` of a rank come next.
  void Follow(std::uint64_t rank, std::uint64_t first, std::uint64_t last, Message& message);

  ListCutter cutter_;
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Run> run_;
  std::uint64_t next_ = 0;
  bool lost_ = false;       // something is missing before the next message
  bool loss_told_ = false;  // by the last message
  std::uint64_t events_ = 0;
  std::uint64_t events_too_long_ = 0;
  // Lists of which the loss was told, since the engine began. What is missing of a rank that has
  // brought nothing since the last one is that.
  std::uint64_t losses_ = 0;
  struct Followed {
    std::uint64_t last_id = 0;
    std::uint64_t losses = 0;
  };
  std::map<std::uint64_t, Followed> ranks_;  // at most kRanksMax
};

}  // namespace kvr::ingest
