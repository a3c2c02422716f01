// Any MessagePack value as the extra keys of a store of two blocks under an adapter: nothing
// crashes, a key that nobody can name never leaves a block equal to plain text, keys of one block
// never reach the other's hash, and both forms of the event are placed the same.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "hashing/block_hash.h"
#include "placement/event_translator.h"
#include "wire/event_encoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::placement::EventTranslator;
using kvr::placement::PlacementBatch;

constexpr std::string_view kAdapter = "adapter";

// `infos`: with a list of objects that names none.
std::string StoreWith(std::string_view keys, bool infos = false) {
  // [1.5, [{...}], 0]
  std::string out("\x93\xcb\x3f\xf8\0\0\0\0\0\0\x91", 11);
  out += infos ? '\x87' : '\x86';
  const auto text = [&](std::string_view word) {
    out += static_cast<char>(0xa0 + word.size());
    out += word;
  };
  text("type");
  text("BlockStored");
  text("block_hashes");
  out += "\x92\x0b\x0c";
  text("token_ids");
  out += "\x98\x01\x02\x03\x04\x05\x06\x07\x08";
  text("block_size");
  out += '\x04';
  text("lora_name");
  text(kAdapter);
  if (infos) {
    text("block_mm_infos");  // of both blocks
    out += "\x92\xc0\xc0";
  }
  text("extra_keys");
  out += keys;
  out += '\0';
  return out;
}

EventTranslator MakeTranslator() {
  kvr::placement::TranslatorOptions options;
  options.block_size = 4;
  options.limits.extra_keys_max = 64;
  options.limits.depth_max = 8;
  return EventTranslator(options);
}

kvr::BlockHash Plain(std::size_t block, std::string_view salt) {
  std::array<kvr::TokenId, 4> tokens{};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<kvr::TokenId>(4 * block + i + 1);
  return kvr::hashing::HashBlock(tokens, kvr::hashing::Seed(kAdapter, salt));
}

// Whether no request can say the key, whatever stands beside it. A map may have a type that has a
// name.
bool IsNameless(const kvr::wire::ExtraKey& key) {
  using Kind = kvr::wire::ExtraKey::Kind;
  if (key.kind != Kind::kOther) return key.kind == Kind::kBytes;
  const auto first = static_cast<unsigned char>(key.raw.front());
  return (first & 0xF0) != 0x80 && first != 0xDE && first != 0xDF;
}

// What an index gets of both is the same.
void CheckSame(const PlacementBatch& a, const PlacementBatch& b) {
  KVR_CHECK(a.events.size() == b.events.size());
  KVR_CHECK(std::ranges::equal(a.blocks, b.blocks));
  for (std::size_t i = 0; i < a.events.size(); ++i)
    KVR_CHECK(a.events[i].eligible == b.events[i].eligible);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string payload =
      StoreWith(std::string_view(reinterpret_cast<const char*>(data), size));
  EventTranslator translator = MakeTranslator();
  PlacementBatch out;
  if (!translator.Translate(std::as_bytes(std::span(payload)), out)) return 0;
  const kvr::wire::EventBatch& decoded = translator.decoded();
  if (decoded.events.size() != 1 || out.events.size() != 1 || out.blocks.size() != 2) return 0;

  const kvr::wire::EngineEvent& event = decoded.events[0];
  for (std::size_t i = 0; i < 2; ++i) {
    const auto keys = decoded.ExtraKeysOf(event, i);
    const bool nameless = std::any_of(keys.begin(), keys.end(), IsNameless);
    if (nameless) KVR_CHECK(out.blocks[i].local != Plain(i, {}));
    if (nameless) KVR_CHECK(!out.events[0].eligible);
  }
  // Without keys of its own the second block has the adapter and the salt of the first one only.
  if (decoded.ExtraKeysOf(event, 0).empty() && decoded.ExtraKeysOf(event, 1).empty()) {
    KVR_CHECK(out.blocks[0].local == Plain(0, {}) && out.blocks[1].local == Plain(1, {}));
  }
  // A list of objects that names none overrules no key.
  const std::string with_infos =
      StoreWith(std::string_view(reinterpret_cast<const char*>(data), size), true);
  EventTranslator second = MakeTranslator();
  PlacementBatch also;
  KVR_CHECK(second.Translate(std::as_bytes(std::span(with_infos)), also).has_value());
  CheckSame(out, also);
  for (const std::string_view dialect : {"maps", "positional"}) {
    std::string again;
    EncodeEventBatch(decoded, *kvr::wire::DialectByName(dialect), again);
    EventTranslator other = MakeTranslator();
    PlacementBatch same;
    KVR_CHECK(other.Translate(std::as_bytes(std::span(again)), same).has_value());
    CheckSame(out, same);
  }
  return 0;
}
