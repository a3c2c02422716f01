// Names that stay the same over restarts: of a cache's semantics, of the scope that routes over it,
// of the pool and slot that hold it, and the short record numbers made from them. All are truncated
// BLAKE3 digests of framed material, so that equal configuration gives equal names on every host.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/result.h"
#include "model/ids.h"

namespace kvr::hashing {

enum class IdSource : std::uint8_t { kDefaultDerived = 0, kExplicit = 1 };

// 16 bytes and where they come from. Text: 32 lower case hex digits, which drops the source.
struct DigestId {
  std::array<std::byte, 16> digest{};
  IdSource source = IdSource::kExplicit;

  [[nodiscard]] std::string Text() const;
  // Source explicit. kInvalidArgument "InvalidHex: ..." on another width or an upper case digit.
  static Result<DigestId> Parse(std::string_view text);
  // {"digest":[16 numbers],"source":"explicit"}
  void WriteJson(JsonWriter& json) const;

  friend auto operator<=>(const DigestId&, const DigestId&) = default;
};

// Text "SEMANTICS:SCOPE".
struct IndexerDomainId {
  DigestId cache_semantics;
  DigestId routing_scope;

  [[nodiscard]] std::string Text() const;
  static Result<IndexerDomainId> Parse(std::string_view text);
  void WriteJson(JsonWriter& json) const;

  friend auto operator<=>(const IndexerDomainId&, const IndexerDomainId&) = default;
};

// Text "DOMAIN/DC", the data centre as 16 hex digits.
struct PoolId {
  IndexerDomainId indexer_domain;
  std::uint64_t dc = 0;

  [[nodiscard]] std::string Text() const;
  static Result<PoolId> Parse(std::string_view text);
  void WriteJson(JsonWriter& json) const;

  friend auto operator<=>(const PoolId&, const PoolId&) = default;
};

// Text "POOL/SLOT".
struct CacheOwnerId {
  PoolId pool;
  DigestId slot;

  [[nodiscard]] std::string Text() const;
  static Result<CacheOwnerId> Parse(std::string_view text);
  void WriteJson(JsonWriter& json) const;

  friend auto operator<=>(const CacheOwnerId&, const CacheOwnerId&) = default;
};

// What an operator wrote to name something; it replaces the defaults. 1 to 32 entries with distinct
// keys of 1 to 128 bytes and values of 1 to 1024 bytes, in any order. Beyond that kInvalidArgument.
using ExplicitEntries = std::vector<std::pair<std::string, std::string>>;

Result<DigestId> ExplicitSemantics(ExplicitEntries entries, std::uint32_t block_size,
                                   std::uint16_t event_hash_format);
Result<DigestId> ExplicitScope(ExplicitEntries entries);
Result<DigestId> ExplicitSlot(ExplicitEntries entries);

DigestId DefaultSemantics(std::span<const std::string_view> defaults, std::uint32_t block_size,
                          std::uint16_t event_hash_format);
DigestId DefaultScope(std::span<const std::string_view> defaults);

// Who holds blocks, as a key of a residency table.
using OwnerKey = std::array<std::byte, 16>;
OwnerKey ResidencyOwnerKey(const Rank& rank);
OwnerKey ResidencyOwnerKey(const CacheOwnerId& owner);

// 1 to 2^53 - 1, so that JSON readers keep it exact.
std::uint64_t AttachmentRecordId(std::uint64_t publisher, std::uint64_t generation);
std::uint64_t HostDiscoveryId(std::uint64_t instance);

}  // namespace kvr::hashing
