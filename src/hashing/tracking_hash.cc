#include "hashing/tracking_hash.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <string.h>

#include "hashing/blake3.h"

namespace kvr::hashing {
namespace {

constexpr std::string_view kPublic = "public-xxh3-v1";
constexpr std::string_view kKeyed = "keyed-xxh3-v1";
// The NUL belongs to it.
constexpr std::string_view kDomain{"dynamo.router.tracking-hash/keyed-xxh3-v1\0", 42};
static_assert(kDomain.back() == '\0' && kDomain[kDomain.size() - 2] == '1');

enum class Tag : std::uint8_t {
  kKeyId = 1,
  kModel = 2,
  kRoutingGroup = 3,
  kBlockSize = 4,
  kCacheSalt = 5,
  kLora = 6,
  kEagle = 7,
};

template <std::size_t N>
std::array<std::byte, N> LittleEndian(std::uint64_t value) {
  std::array<std::byte, N> out;
  for (std::size_t i = 0; i < N; ++i)
    out[i] = static_cast<std::byte>(value >> (8 * i));
  return out;
}

void UpdateByte(Blake3& hash, std::uint8_t byte) {
  hash.Update(LittleEndian<1>(byte));
}

void UpdateSized(Blake3& hash, std::span<const std::byte> bytes) {
  hash.Update(LittleEndian<8>(bytes.size()));
  hash.Update(bytes);
}

void UpdateFixed(Blake3& hash, Tag tag, std::span<const std::byte> bytes) {
  UpdateByte(hash, static_cast<std::uint8_t>(tag));
  UpdateSized(hash, bytes);
}

void UpdateFixed(Blake3& hash, Tag tag, std::string_view text) {
  UpdateFixed(hash, tag, std::as_bytes(std::span(text)));
}

// Empty is absent.
void UpdateOptional(Blake3& hash, Tag tag, std::string_view text) {
  UpdateByte(hash, static_cast<std::uint8_t>(tag));
  UpdateByte(hash, text.empty() ? 0 : 1);
  if (!text.empty()) UpdateSized(hash, std::as_bytes(std::span(text)));
}

std::uint64_t ReadLittleEndian(std::span<const std::byte> bytes) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i)
    out |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return out;
}

bool HasOuterWhiteSpace(std::string_view text) {
  static constexpr std::string_view kWhite = " \t\r\n\v\f";
  return kWhite.find(text.front()) != kWhite.npos || kWhite.find(text.back()) != kWhite.npos;
}

}  // namespace

TrackingKey::TrackingKey(std::span<const std::byte, kBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

TrackingKey::~TrackingKey() {
  explicit_bzero(bytes_.data(), bytes_.size());
}

TrackingKey::TrackingKey(TrackingKey&& other) noexcept : bytes_(other.bytes_) {
  explicit_bzero(other.bytes_.data(), other.bytes_.size());
}

TrackingKey& TrackingKey::operator=(TrackingKey&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  explicit_bzero(other.bytes_.data(), other.bytes_.size());
  return *this;
}

Result<TrackingKey> TrackingKey::ReadFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr) return Fail(ErrorCode::kIo, "failed to read router tracking key file");
  std::setvbuf(file.get(), nullptr, _IONBF, 0);  // leaves no copy of the key in a buffer
  std::array<std::byte, 4096> room;
  std::array<std::byte, kBytes> key{};
  std::size_t total = 0;
  while (const std::size_t got = std::fread(room.data(), 1, room.size(), file.get())) {
    if (total < kBytes) {
      std::copy_n(room.begin(), std::min(got, kBytes - total),
                  key.begin() + static_cast<std::ptrdiff_t>(total));
    }
    total += got;
  }
  explicit_bzero(room.data(), room.size());
  TrackingKey out(key);
  explicit_bzero(key.data(), key.size());
  if (std::ferror(file.get()) != 0)
    return Fail(ErrorCode::kIo, "failed to read router tracking key file");
  if (total != kBytes) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("router tracking key file must contain exactly 32 raw bytes; found {}", total));
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const TrackingKey&) {
  return out << "[REDACTED]";
}

Result<void> TrackingOptions::Validate() const {
  if (algorithm == kPublic) {
    if (key_file.empty() && key_id.empty()) return {};
    return Fail(ErrorCode::kInvalidArgument,
                "router tracking key options require router_tracking_hash=keyed-xxh3-v1");
  }
  if (algorithm != kKeyed) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("router_tracking_hash must be public-xxh3-v1 or keyed-xxh3-v1, got "
                            "\"{}\"",
                            algorithm));
  }
  if (key_file.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "keyed-xxh3-v1 requires router_tracking_key_file");
  }
  if (key_id.empty() || HasOuterWhiteSpace(key_id)) {
    return Fail(ErrorCode::kInvalidArgument,
                "keyed-xxh3-v1 requires a nonempty router_tracking_key_id");
  }
  return {};
}

TrackingHasher::TrackingHasher(TrackingKey key, std::string key_id)
    : key_(std::move(key)), key_id_(std::move(key_id)) {}

Result<TrackingHasher> TrackingHasher::Make(const TrackingOptions& options) {
  KVR_TRY_VOID(options.Validate());
  if (options.algorithm == kPublic) return TrackingHasher();
  KVR_TRY(TrackingKey key, TrackingKey::ReadFile(options.key_file));
  return TrackingHasher(std::move(key), options.key_id);
}

TrackingSeeds TrackingHasher::SeedsFor(const TrackingScope& scope) const {
  if (!key_) return {.block = Seed(scope.lora, scope.cache_salt), .chain = kBaseSeed};
  Blake3 hash(key_->bytes());
  hash.Update(kDomain);
  UpdateFixed(hash, Tag::kKeyId, key_id_);
  UpdateFixed(hash, Tag::kModel, scope.model);
  UpdateFixed(hash, Tag::kRoutingGroup, scope.routing_group);
  UpdateFixed(hash, Tag::kBlockSize, LittleEndian<4>(scope.block_size));
  UpdateOptional(hash, Tag::kCacheSalt, scope.cache_salt);
  UpdateOptional(hash, Tag::kLora, scope.lora);
  UpdateFixed(hash, Tag::kEagle, LittleEndian<1>(scope.eagle ? 1 : 0));
  const Blake3Digest digest = hash.Finish();
  const std::span bytes(digest);
  return {.block = Seed::FromRaw(ReadLittleEndian(bytes.first(8))),
          .chain = ReadLittleEndian(bytes.subspan(8, 8))};
}

void TrackingHashes(std::span<const TokenId> tokens, const TrackingScope& scope,
                    const TrackingSeeds& seeds, std::span<const BlockMm> mm,
                    std::vector<BlockHash>& blocks, std::vector<SequenceHash>& out) {
  HashBlocks(tokens, {.block_size = scope.block_size, .eagle = scope.eagle, .seed = seeds.block},
             mm, blocks);
  ChainHashes(blocks, out, seeds.chain);
}

void UniqueTrackingHashes(std::size_t blocks, Rng& rng, std::vector<SequenceHash>& out) {
  out.resize(blocks);
  std::generate(out.begin(), out.end(), [&rng] { return SequenceHash{rng()}; });
}

}  // namespace kvr::hashing
