#include "wire/stream.h"

#include <array>
#include <map>

#include <fmt/format.h>

#include "hashing/block_hash.h"
#include "hashing/xxh3.h"
#include "placement/drop_text.h"
#include "support/json_msgpack.h"

namespace kvr::test {
namespace {

std::array<TokenId, 4> TokensOf(char block) {
  const TokenId first = block >= 'X' ? 101u + 4u * static_cast<TokenId>(block - 'X')
                                     : 1u + 4u * static_cast<TokenId>(block - 'A');
  return {first, first + 1, first + 2, first + 3};
}

std::string NameOf(BlockHash local) {
  static const std::map<BlockHash, char> names = [] {
    std::map<BlockHash, char> all;
    for (const char block : std::string_view("ABCDEXYZ")) {
      all[hashing::HashBlock(TokensOf(block), hashing::Seed())] = block;
    }
    return all;
  }();
  const auto found = names.find(local);
  return found == names.end() ? std::to_string(Raw(local)) : std::string(1, found->second);
}

std::string Describe(const PlacementEvent& event) {
  std::string text = event.kind == PlacementKind::kCleared   ? "cleared"
                     : event.kind == PlacementKind::kRemoved ? "removed"
                     : event.hash_only                       ? "named"
                                                             : "stored";
  if (event.rank.dp_rank != 0) text += fmt::format(" @{}", event.rank.dp_rank);
  if (event.kind == PlacementKind::kCleared) return text;
  text += fmt::format(" {}", TierName(event.tier));
  if (event.parent) text += fmt::format(" <{}", Raw(*event.parent));
  for (const EngineHash hash : event.removed)
    text += fmt::format(" {}", Raw(hash));
  for (const PlacedBlock& block : event.blocks) {
    text += fmt::format(" {}", Raw(block.engine));
    if (!event.hash_only) text += "=" + NameOf(block.local);
  }
  // Off the device it depends on what was stored before.
  const bool told = event.kind == PlacementKind::kStored && event.tier == Tier::kDevice;
  if (told && !event.hash_only && !event.eligible) {
    text += " !eligible";
  }
  return text;
}

void Append(std::string& all, const std::string& part) {
  if (!all.empty()) all += "; ";
  all += part;
}

std::string With(std::string event, std::string_view more) {
  if (!more.empty()) event += fmt::format(",{}", more);
  return event + "}";
}

}  // namespace

std::string St(std::string_view hashes, std::string_view parent, std::string_view tokens,
               std::string_view more) {
  return With(fmt::format(R"({{"type":"BlockStored","block_hashes":[{}],"parent_block_hash":{},)"
                          R"("token_ids":[{}],"block_size":4)",
                          hashes, parent, tokens),
              more);
}

std::string Rm(std::string_view hashes, std::string_view more) {
  return With(fmt::format(R"({{"type":"BlockRemoved","block_hashes":[{}])", hashes), more);
}

std::string Batch(const std::vector<std::string>& events) {
  return fmt::format("[1.5,[{}],0]", fmt::join(events, ","));
}

std::string Local(char block, std::string_view lora, std::string_view salt,
                  std::vector<std::uint64_t> mm) {
  return std::to_string(Raw(hashing::HashBlock(TokensOf(block), hashing::Seed(lora, salt), mm)));
}

std::string NumberedAdapter(char block, std::uint8_t lora_id) {
  const std::string bytes = static_cast<char>(lora_id) + std::string(7, '\0');
  const std::uint64_t mix = hashing::Xxh3(bytes, 3) | 1;
  const auto seed = hashing::Seed::FromRaw(hashing::Seed().raw() + mix);
  return std::to_string(Raw(hashing::HashBlock(TokensOf(block), seed)));
}

placement::TranslatorOptions StreamOptions() {
  placement::TranslatorOptions options;
  options.rank = Rank{WorkerId{1}, 0};
  options.block_size = 4;
  return options;
}

Stream::Stream() : Stream(StreamOptions()) {}

std::string Stream::Feed(std::string_view json) {
  return FeedBytes(MsgpackFromJson(json));
}

std::string Stream::FeedBytes(std::span<const std::byte> payload) {
  const auto done = translator_.Translate(payload, batch_);
  if (!done) return fmt::format("error {}", placement::BatchErrorName(done.error().code));
  std::string text;
  if (batch_.forget) Append(text, "forget");
  for (const PlacementEvent& event : batch_.events)
    Append(text, Describe(event));
  for (const auto& dropped : batch_.dropped) {
    Append(text,
           fmt::format("drop {} {}", dropped.index, placement::DropReasonName(dropped.reason)));
  }
  return text;
}

}  // namespace kvr::test
