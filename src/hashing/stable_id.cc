#include "hashing/stable_id.h"

#include <algorithm>
#include <concepts>

#include <fmt/format.h>

#include "base/hex.h"
#include "base/text.h"
#include "hashing/blake3.h"

namespace kvr::hashing {
namespace {

constexpr std::size_t kEntriesMax = 32;
constexpr std::size_t kKeyBytesMax = 128;
constexpr std::size_t kValueBytesMax = 1024;
constexpr std::uint64_t kRecordIdMask = (std::uint64_t{1} << 53) - 1;

// Collects what a digest is made from.
class Material {
 public:
  void Raw(std::string_view text) { hash_.Update(text); }
  void Raw(std::span<const std::byte> bytes) { hash_.Update(bytes); }

  void Little(std::unsigned_integral auto value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      Byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void Big(std::unsigned_integral auto value) {
    for (std::size_t i = sizeof value; i-- > 0;)
      Byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }

  // Length as u32 LE, then the bytes.
  void Framed(std::string_view text) {
    Little(static_cast<std::uint32_t>(text.size()));
    Raw(text);
  }

  void WithSource(const DigestId& id) {
    Raw(id.digest);
    Byte(static_cast<std::uint8_t>(id.source));
  }

  [[nodiscard]] std::array<std::byte, 16> Digest16() const {
    const Blake3Digest digest = hash_.Finish();
    std::array<std::byte, 16> out;
    std::copy_n(digest.begin(), out.size(), out.begin());
    return out;
  }

  // The first 8 bytes, folded into 1..2^53-1.
  [[nodiscard]] std::uint64_t RecordId() const {
    const Blake3Digest digest = hash_.Finish();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i)
      value = value << 8 | std::to_integer<std::uint64_t>(digest[i]);
    return std::max<std::uint64_t>(1, value & kRecordIdMask);
  }

 private:
  void Byte(std::uint8_t value) {
    const auto byte = static_cast<std::byte>(value);
    hash_.Update(std::span(&byte, 1));
  }

  Blake3 hash_;
};

Result<void> CheckEntries(ExplicitEntries& entries) {
  if (entries.empty() || entries.size() > kEntriesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("an explicit identity has 1 to {} entries, got {}", kEntriesMax,
                            entries.size()));
  }
  for (const auto& [key, value] : entries) {
    if (key.empty() || key.size() > kKeyBytesMax) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("a key of an explicit identity has 1 to {} bytes, got {}",
                              kKeyBytesMax, key.size()));
    }
    if (value.empty() || value.size() > kValueBytesMax) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the value of `{}` in an explicit identity has 1 to {} bytes, got {}",
                              key, kValueBytesMax, value.size()));
    }
  }
  std::sort(entries.begin(), entries.end());
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != entries.end()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("key `{}` stands twice in an explicit identity; keep one", twice->first));
  }
  return {};
}

Result<Material> ExplicitMaterial(std::string_view tag, ExplicitEntries entries) {
  KVR_TRY_VOID(CheckEntries(entries));
  Material material;
  material.Framed(tag);
  material.Little(static_cast<std::uint32_t>(entries.size()));
  for (const auto& [key, value] : entries) {
    material.Framed(key);
    material.Framed(value);
  }
  return material;
}

Material DefaultMaterial(std::string_view tag, std::span<const std::string_view> defaults) {
  Material material;
  material.Framed(tag);
  material.Little(static_cast<std::uint32_t>(defaults.size()));
  for (const std::string_view text : defaults)
    material.Framed(text);
  return material;
}

tl::unexpected<Error> FailText(std::string_view what, std::string_view text,
                               std::string_view form) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("`{}` is no {}; write {}", text.substr(0, 200), what, form));
}

bool IsLowerHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace

std::string DigestId::Text() const {
  return ToHex(digest);
}

Result<DigestId> DigestId::Parse(std::string_view text) {
  DigestId id;
  if (text.size() != id.digest.size() * 2 || !IsLowerHex(text)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("InvalidHex: `{}` is not 32 lower case hex digits", text.substr(0, 64)));
  }
  KVR_TRY(const auto bytes, FromHex(text));
  std::copy(bytes.begin(), bytes.end(), id.digest.begin());
  id.source = IdSource::kExplicit;
  return id;
}

void DigestId::WriteJson(JsonWriter& json) const {
  json.BeginObject();
  json.Key("digest");
  json.BeginArray();
  for (const std::byte b : digest)
    json.Value(std::to_integer<std::uint32_t>(b));
  json.EndArray();
  json.Field("source", source == IdSource::kExplicit ? "explicit" : "default_derived");
  json.EndObject();
}

std::string IndexerDomainId::Text() const {
  return cache_semantics.Text() + ":" + routing_scope.Text();
}

Result<IndexerDomainId> IndexerDomainId::Parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos || text.find(':', colon + 1) != text.npos)
    return FailText("indexer domain", text, "CACHE_SEMANTICS:ROUTING_SCOPE");
  IndexerDomainId id;
  KVR_TRY(id.cache_semantics, DigestId::Parse(text.substr(0, colon)));
  KVR_TRY(id.routing_scope, DigestId::Parse(text.substr(colon + 1)));
  return id;
}

void IndexerDomainId::WriteJson(JsonWriter& json) const {
  json.BeginObject();
  json.Key("cache_semantics");
  cache_semantics.WriteJson(json);
  json.Key("routing_scope");
  routing_scope.WriteJson(json);
  json.EndObject();
}

std::string PoolId::Text() const {
  return fmt::format("{}/{:016x}", indexer_domain.Text(), dc);
}

Result<PoolId> PoolId::Parse(std::string_view text) {
  const std::size_t slash = text.rfind('/');
  if (slash == text.npos) return FailText("pool", text, "DOMAIN/DATA_CENTRE");
  PoolId id;
  KVR_TRY(id.indexer_domain, IndexerDomainId::Parse(text.substr(0, slash)));
  const std::string_view dc = text.substr(slash + 1);
  if (dc.size() != 16 || !IsLowerHex(dc)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("InvalidHex: `{}` is not 16 lower case hex digits", dc.substr(0, 64)));
  }
  id.dc = ParseNumber<std::uint64_t>(dc, 16).value();
  return id;
}

void PoolId::WriteJson(JsonWriter& json) const {
  json.BeginObject();
  json.Key("indexer_domain");
  indexer_domain.WriteJson(json);
  json.Field("dc_id", dc);
  json.EndObject();
}

std::string CacheOwnerId::Text() const {
  return pool.Text() + "/" + slot.Text();
}

Result<CacheOwnerId> CacheOwnerId::Parse(std::string_view text) {
  const std::size_t slash = text.rfind('/');
  if (slash == text.npos) return FailText("cache owner", text, "POOL/SLOT");
  CacheOwnerId id;
  KVR_TRY(id.pool, PoolId::Parse(text.substr(0, slash)));
  KVR_TRY(id.slot, DigestId::Parse(text.substr(slash + 1)));
  return id;
}

void CacheOwnerId::WriteJson(JsonWriter& json) const {
  json.BeginObject();
  json.Key("pool");
  pool.WriteJson(json);
  json.Key("slot");
  slot.WriteJson(json);
  json.EndObject();
}

Result<DigestId> ExplicitSemantics(ExplicitEntries entries, std::uint32_t block_size,
                                   std::uint16_t event_hash_format) {
  KVR_TRY(Material material,
          ExplicitMaterial("dynamo/indexer-cache-semantics/explicit/v1", std::move(entries)));
  material.Little(block_size);
  material.Little(event_hash_format);
  return DigestId{material.Digest16(), IdSource::kExplicit};
}

Result<DigestId> ExplicitScope(ExplicitEntries entries) {
  KVR_TRY(const Material material,
          ExplicitMaterial("dynamo/indexer-routing-scope/explicit/v1", std::move(entries)));
  return DigestId{material.Digest16(), IdSource::kExplicit};
}

Result<DigestId> ExplicitSlot(ExplicitEntries entries) {
  KVR_TRY(const Material material,
          ExplicitMaterial("dynamo/stable-dp-slot/explicit/v1", std::move(entries)));
  return DigestId{material.Digest16(), IdSource::kExplicit};
}

DigestId DefaultSemantics(std::span<const std::string_view> defaults, std::uint32_t block_size,
                          std::uint16_t event_hash_format) {
  Material material = DefaultMaterial("dynamo/indexer-cache-semantics/default/v1", defaults);
  material.Little(block_size);
  material.Little(event_hash_format);
  return {material.Digest16(), IdSource::kDefaultDerived};
}

DigestId DefaultScope(std::span<const std::string_view> defaults) {
  return {DefaultMaterial("dynamo/indexer-routing-scope/default/v1", defaults).Digest16(),
          IdSource::kDefaultDerived};
}

OwnerKey ResidencyOwnerKey(const Rank& rank) {
  Material material;
  material.Raw("dynamo/residency-owner/worker/v1");
  material.Big(Raw(rank.worker));
  material.Big(rank.dp_rank);
  return material.Digest16();
}

OwnerKey ResidencyOwnerKey(const CacheOwnerId& owner) {
  Material material;
  material.Raw("dynamo/residency-owner/cache-owner/v1");
  material.WithSource(owner.pool.indexer_domain.cache_semantics);
  material.WithSource(owner.pool.indexer_domain.routing_scope);
  material.Big(owner.pool.dc);
  material.WithSource(owner.slot);
  return material.Digest16();
}

std::uint64_t AttachmentRecordId(std::uint64_t publisher, std::uint64_t generation) {
  Material material;
  material.Raw("dynamo/kv-state-attachment-record/v2");
  material.Big(publisher);
  material.Big(generation);
  return material.RecordId();
}

std::uint64_t HostDiscoveryId(std::uint64_t instance) {
  Material material;
  material.Raw("dynamo/kv-state-host/v2");
  material.Big(instance);
  return material.RecordId();
}

}  // namespace kvr::hashing
