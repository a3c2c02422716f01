// Reads a JSON request body field by field, so that every fault is answered by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hashing/block_hash.h"
#include "model/ids.h"

namespace kvr::service {

// One parsed body. Views it returns live as long as it does. Not thread-safe.
//
// Errors: kBadJson when the text is no JSON object or nests too deep, kUnprocessable when a field
// is missing, mistyped, out of range or given twice; the message names the field, and the element
// of a list. null counts as absent for optional fields.
class JsonBody {
 public:
  static Result<JsonBody> Parse(std::string_view text);
  JsonBody(JsonBody&&) noexcept;
  JsonBody& operator=(JsonBody&&) noexcept;
  ~JsonBody();

  [[nodiscard]] bool Has(std::string_view field);  // present and not null

  Result<std::uint64_t> Unsigned(std::string_view field, std::uint64_t max);
  Result<std::optional<std::uint64_t>> OptionalUnsigned(std::string_view field, std::uint64_t max);
  Result<std::string_view> String(std::string_view field);
  Result<std::optional<std::string_view>> OptionalString(std::string_view field);
  Result<bool> Flag(std::string_view field, bool fallback);

  // Token ids; each must be an integer of 0 to 2^32-1.
  Result<void> Tokens(std::string_view field, std::vector<TokenId>& out);
  // 64-bit hashes, signed (as two's complement) or unsigned.
  Result<void> Hashes(std::string_view field, std::vector<BlockHash>& out);
  // [null | {"mm_objects": [{"mm_hash": u64, ...}]}], one element a block. Absent: none.
  Result<void> BlockMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out);
  // For fields that are accepted and have no effect.
  void Ignore(std::string_view field);

  // Fields nobody asked for, in the order of the body.
  [[nodiscard]] std::vector<std::string> UnknownFields() const;

 private:
  struct Document;
  explicit JsonBody(std::unique_ptr<Document> document);

  std::unique_ptr<Document> document_;
};

}  // namespace kvr::service
