#include "cmd/hash_command.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/result.h"
#include "base/text.h"
#include "cmd/parse_words.h"
#include "hashing/block_hash.h"
#include "hashing/cache_salt.h"
#include "wire/hex_digest.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute hash";
// Standard input beyond this is refused: some six million tokens.
constexpr std::size_t kInputBytesMax = std::size_t{64} << 20;

struct HashArgs {
  hashing::BlockHashing how;
  std::vector<hashing::BlockMm> mm;  // ascending by block
  std::vector<TokenId> tokens;
};

// What CLI11 fills in.
struct Words {
  std::string block_size;
  std::string lora;
  std::string salt;
  std::vector<std::string> mm;
  bool eagle = false;
  std::vector<std::string> tokens;
};

// Decimal, 0x and hex digits, or the 64 hex digits by which engines name an object: the first 16
// are the hash.
std::optional<hashing::MmHash> ParseMmHash(std::string_view text) {
  if (text.starts_with("0x")) return ParseNumber<hashing::MmHash>(text.substr(2), 16);
  return text.size() == 64 ? wire::HexDigestHead(text) : ParseNumber<hashing::MmHash>(text);
}

Result<hashing::BlockMm> ParseMm(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const auto block = ParseNumber<std::size_t>(text.substr(0, colon));
    const auto hash = ParseMmHash(text.substr(colon + 1));
    if (block && hash) return hashing::BlockMm{*block, *hash};
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--mm `{}` is not BLOCK:HASH; write the block's index from 0 and a 64-bit "
                  "hash, as in `--mm 0:42` or `--mm 0:0x2a`",
                  text));
}

Result<void> AppendTokens(std::string_view text, std::vector<TokenId>& out) {
  static constexpr std::string_view kSeparators = ", \t\r\n\v\f";
  for (std::size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const auto token = ParseNumber<TokenId>(word);
    if (!token) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("`{}` is no token id; write numbers of 0 to {}, separated by white "
                              "space or commas",
                              word.substr(0, 40), std::numeric_limits<TokenId>::max()));
    }
    out.push_back(*token);
    at = end;
  }
  return {};
}

Result<std::string> ReadInput(std::FILE* in) {
  std::string text;
  std::array<char, 65536> room;
  while (const std::size_t got = std::fread(room.data(), 1, room.size(), in)) {
    text.append(room.data(), got);
    if (text.size() > kInputBytesMax) {
      return Fail(ErrorCode::kTooLarge,
                  fmt::format("standard input is longer than {} MiB; hash it in parts of whole "
                              "blocks",
                              kInputBytesMax >> 20));
    }
  }
  if (std::ferror(in) != 0) return Fail(ErrorCode::kIo, "cannot read standard input");
  return text;
}

Result<HashArgs> Interpret(const Words& words) {
  HashArgs args;
  const auto block_size = ParseNumber<std::uint32_t>(words.block_size);
  if (!block_size || *block_size == 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--block-size `{}` is no positive number; give the engine's block size, "
                    "as in `--block-size 16`",
                    words.block_size));
  }
  args.how.block_size = *block_size;
  args.how.eagle = words.eagle;
  args.how.seed = hashing::Seed(words.lora, hashing::NamedSalt(words.salt));

  if (words.tokens.empty()) {
    KVR_TRY(const std::string input, ReadInput(stdin));
    KVR_TRY_VOID(AppendTokens(input, args.tokens));
  }
  for (const auto& word : words.tokens)
    KVR_TRY_VOID(AppendTokens(word, args.tokens));

  const std::size_t blocks =
      hashing::BlockCount(args.tokens.size(), args.how.block_size, args.how.eagle);
  for (const auto& word : words.mm) {
    KVR_TRY(const auto mm, ParseMm(word));
    if (mm.block >= blocks) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--mm `{}` names block {}, but the {} tokens have {} complete blocks, "
                      "counted from 0",
                      word, mm.block, args.tokens.size(), blocks));
    }
    args.mm.push_back(mm);
  }
  std::sort(args.mm.begin(), args.mm.end(),
            [](const auto& a, const auto& b) { return a.block < b.block; });
  return args;
}

std::string ToJson(const HashArgs& args) {
  std::vector<BlockHash> blocks;
  std::vector<SequenceHash> chain;
  hashing::HashBlocks(args.tokens, args.how, args.mm, blocks);
  hashing::ChainHashes(blocks, chain);
  std::string out;
  JsonWriter json(out);
  const auto array = [&json](std::string_view name, const auto& hashes) {
    json.Key(name);
    json.BeginArray();
    for (const auto hash : hashes)
      json.Value(Raw(hash));
    json.EndArray();
  };
  json.BeginObject();
  json.Field("block_size", args.how.block_size);
  array("block_hashes", blocks);
  array("sequence_hashes", chain);
  json.EndObject();
  return out;
}

int Run(const std::vector<std::string>& argv) {
  Words words;
  CLI::App app("Prints the block and sequence hashes of token ids as one JSON object.",
               std::string(kName));
  app.add_option("--block-size", words.block_size, "Tokens per block, as the engine is configured")
      ->required();
  app.add_option("--lora", words.lora, "LoRA adapter of the request");
  app.add_option("--salt", words.salt, "Cache salt of the request");
  app.add_option("--mm", words.mm,
                 "BLOCK:HASH, a multimodal object in a block; decimal, 0x..., or 64 hex digits of "
                 "which the first 16 count. Repeatable")
      ->allow_extra_args(false);
  app.add_flag("--eagle", words.eagle, "Windows of one token more than a block (EAGLE engines)");
  app.add_option("tokens", words.tokens,
                 "Token ids; without any they are read from standard input, separated by white "
                 "space or commas");
  if (const auto code = ParseWords(app, argv)) return *code;

  const auto args = Interpret(words);
  if (!args) {
    UsageError(kName, args.error().message);
    return ExitCode(args.error().code);
  }
  std::puts(ToJson(*args).c_str());
  return 0;
}

}  // namespace

const Command kHashCommand = {"hash", "block and sequence hashes of token ids", Run};

}  // namespace kvr::cmd
