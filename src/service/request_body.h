// Reads a request body field by field, so that every fault is answered by name, whatever the body
// is written in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "hashing/block_hash.h"
#include "model/ids.h"

namespace kvr::service {

enum class BodyForm : std::uint8_t { kJson, kMsgpack };

// One parsed body: an object of named fields. Views it returns live as long as it and the bytes it
// was read from do. Not thread-safe.
//
// Errors: kUnprocessable when a field is missing, mistyped or out of range; the message names the
// field, and the element of a list. null counts as absent for optional fields.
class RequestBody {
 public:
  static constexpr std::size_t kDepthMax = 64;

  // What stands in a field, so far as one look at it tells.
  struct Value {
    enum class Kind : std::uint8_t {
      kNull,
      kBool,
      kUnsigned,
      kNegative,
      kFraction,
      kString,
      kArray,
      kObject,
      kBytes
    };
    Kind kind = Kind::kNull;
    std::uint64_t number = 0;  // kBool, kUnsigned; kNegative as two's complement
    std::string_view text;     // kString

    [[nodiscard]] std::string_view TypeName() const;  // with an article
  };

  // kBadJson when the bytes are no object of that form or nest deeper than kDepthMax,
  // kUnprocessable when a field is given twice. `bytes` must outlive the body.
  static Result<std::unique_ptr<RequestBody>> Parse(std::string_view bytes, BodyForm form);

  RequestBody() = default;
  RequestBody(const RequestBody&) = delete;
  RequestBody& operator=(const RequestBody&) = delete;
  virtual ~RequestBody() = default;

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

 protected:
  // Why a list was not read: the element at fault. Elements before it are in the list.
  using Fault = std::optional<std::size_t>;

  // Notes a field of the body, in order; kUnprocessable when it was noted before.
  Result<void> AddField(std::string_view name);

  // Kind kNull when the field is absent.
  virtual Value Look(std::string_view field) = 0;
  // For a field whose Look was kArray. `out` is empty.
  virtual Fault ReadTokens(std::string_view field, std::vector<TokenId>& out) = 0;
  virtual Fault ReadHashes(std::string_view field, std::vector<BlockHash>& out) = 0;
  // False when the list has another shape than BlockMmInfos says.
  virtual bool ReadMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) = 0;

 private:
  Value Find(std::string_view field);

  std::vector<std::string_view> fields_;           // as in the body
  std::unordered_set<std::string_view> distinct_;  // the same
  std::vector<std::string_view> used_;
};

}  // namespace kvr::service
