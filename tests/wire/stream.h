// An engine's event stream in short notation: JSON in, one line of outcome out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "placement/event_translator.h"

namespace kvr::test {

// Four-token blocks A = 1 2 3 4, B = 5 6 7 8, and so on.
inline constexpr std::string_view kA = "1,2,3,4";
inline constexpr std::string_view kB = "5,6,7,8";
inline constexpr std::string_view kC = "9,10,11,12";
inline constexpr std::string_view kD = "13,14,15,16";
inline constexpr std::string_view kX = "101,102,103,104";

// Events as JSON maps of block size 4. `more` is added as written: R"("medium":"CPU")".
std::string St(std::string_view hashes, std::string_view parent, std::string_view tokens,
               std::string_view more = {});
std::string Rm(std::string_view hashes, std::string_view more = {});
inline constexpr std::string_view kClr = R"({"type":"AllBlocksCleared"})";

// [1.5, [events...], 0]
std::string Batch(const std::vector<std::string>& events);

// The hash of block A (or B, ...) with an identity and multimodal objects mixed in, in decimal.
std::string Local(char block, std::string_view lora = {}, std::string_view salt = {},
                  std::vector<std::uint64_t> mm = {});

// The hash of block A of an adapter that has a number and no name, in decimal.
std::string NumberedAdapter(char block, std::uint8_t lora_id);

// One rank stream, worker 1, rank 0, block size 4 unless the options say otherwise.
class Stream {
 public:
  Stream();
  explicit Stream(const placement::TranslatorOptions& options) : translator_(options) {}

  // Feeds one batch and describes what came out, parts separated by "; ":
  //   stored device 11=A 12=B      engine hash = block; its number where it has no name
  //   stored host_pinned <11 12=B  under a parent
  //   stored @3 ...                of a rank other than 0
  //   stored ... !eligible         the identity is not complete; said of the device only
  //   named disk 11 12             hash-only
  //   removed device 11 12, cleared
  //   drop 2 unknown_medium        event 2 went no further
  //   forget             what came before was named wrongly
  //   error over_limit             the batch was refused
  // Nothing at all is "".
  std::string Feed(std::string_view json);
  std::string FeedBytes(std::span<const std::byte> payload);

  placement::EventTranslator& translator() { return translator_; }
  [[nodiscard]] const placement::PlacementBatch& batch() const { return batch_; }

 private:
  placement::EventTranslator translator_;
  placement::PlacementBatch batch_;
};

// The options of Stream().
placement::TranslatorOptions StreamOptions();

}  // namespace kvr::test
