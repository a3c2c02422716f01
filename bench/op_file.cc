#include "bench/op_file.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

namespace kvr::bench {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::string_view kMagic("KVROPS\x1a\n", 8);
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kOpBytes = 32;
constexpr std::size_t kWordBytes = 8;
constexpr std::uint8_t kHasParent = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t ranks;
  std::uint64_t seed;
  std::uint32_t block_tokens;
  std::uint32_t reserved;
  std::uint64_t ops;
  std::uint64_t words;
  std::uint64_t body_hash;    // XXH3-64 of all bytes behind the header
  std::uint64_t header_hash;  // XXH3-64 of all bytes before
};
static_assert(sizeof(Header) == kHeaderBytes);

struct OpRecord {
  std::uint64_t time_ns;
  std::uint64_t parent;
  std::uint32_t rank;
  std::uint32_t blocks;
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint8_t reserved[6];
};
static_assert(sizeof(OpRecord) == kOpBytes);

std::uint64_t HeaderHash(const Header& header) {
  return XXH3_64bits(&header, kHeaderBytes - sizeof(header.header_hash));
}

tl::unexpected<Error> Corrupt(std::string what) {
  return Fail(ErrorCode::kCorrupt, "operation file: " + std::move(what));
}

Result<Header> ParseHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) {
    return Corrupt(fmt::format("{} bytes, but the header alone has {}; it was cut short",
                               bytes.size(), kHeaderBytes));
  }
  Header header{};
  std::memcpy(&header, bytes.data(), kHeaderBytes);
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic)
    return Corrupt("byte 0: does not begin with the mark of an operation file");
  if (header.version != kVersion) {
    return Corrupt(fmt::format("byte 8: version {}; this program reads version {}, make it again",
                               header.version, kVersion));
  }
  if (header.header_hash != HeaderHash(header))
    return Corrupt("byte 56: the header does not match its checksum");
  if (header.ranks == 0) return Corrupt("byte 12: no ranks");
  if (header.reserved != 0) return Corrupt("byte 28: reserved bytes are not zero");
  const std::uint64_t body = bytes.size() - kHeaderBytes;
  if (header.ops > body / kOpBytes || header.words != (body - header.ops * kOpBytes) / kWordBytes ||
      body % kWordBytes != 0) {
    return Corrupt(fmt::format(
        "byte 32: {} operations and {} words do not fill the {} bytes behind the header",
        header.ops, header.words, body));
  }
  return header;
}

// What is wrong with an operation by itself, or nothing.
std::string WrongWith(const OpRecord& record, std::uint32_t ranks) {
  if (record.kind > static_cast<std::uint8_t>(OpKind::kCleared))
    return fmt::format("unknown kind {}", record.kind);
  const auto kind = static_cast<OpKind>(record.kind);
  if (record.rank >= ranks) return fmt::format("rank {} of {}", record.rank, ranks);
  const bool has_parent = record.flags == kHasParent;
  if (record.flags > kHasParent || (has_parent && kind != OpKind::kStored))
    return fmt::format("flags {} on kind {}", record.flags, record.kind);
  if (!has_parent && record.parent != 0) return "a parent without its flag";
  for (const std::uint8_t byte : record.reserved) {
    if (byte != 0) return "reserved bytes are not zero";
  }
  if (kind == OpKind::kCleared && record.blocks != 0) return "a clear with blocks";
  return {};
}

// Unmaps when it goes.
class Mapping {
 public:
  Mapping(void* begin, std::size_t size) : begin_(begin), size_(size) {}
  ~Mapping() { ::munmap(begin_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(begin_), size_};
  }

 private:
  void* const begin_;
  const std::size_t size_;
};

tl::unexpected<Error> IoError(const std::string& path, std::string_view what) {
  return Fail(ErrorCode::kIo, fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

void OpTrace::Add(Op op, std::span<const std::uint64_t> op_words) {
  op.word = words.size();
  words.insert(words.end(), op_words.begin(), op_words.end());
  ops.push_back(op);
}

OpCounts CountOps(const OpTrace& trace) {
  OpCounts counts;
  for (const Op& op : trace.ops) {
    switch (op.kind) {
      case OpKind::kQuery:
        ++counts.queries;
        counts.query_blocks += op.blocks;
        break;
      case OpKind::kStored:
        ++counts.stores;
        counts.stored_blocks += op.blocks;
        break;
      case OpKind::kRemoved:
        ++counts.removals;
        counts.removed_blocks += op.blocks;
        break;
      case OpKind::kCleared:
        ++counts.clears;
        break;
    }
  }
  return counts;
}

std::string SerializeOps(const OpTrace& trace) {
  std::string bytes(kHeaderBytes, '\0');
  bytes.reserve(kHeaderBytes + trace.ops.size() * kOpBytes + trace.words.size() * kWordBytes);
  for (const Op& op : trace.ops) {
    OpRecord record{};
    record.time_ns = op.time_ns;
    record.parent = op.parent;
    record.rank = op.rank;
    record.blocks = op.blocks;
    record.kind = static_cast<std::uint8_t>(op.kind);
    record.flags = op.has_parent ? kHasParent : 0;
    bytes.append(reinterpret_cast<const char*>(&record), kOpBytes);
  }
  bytes.append(reinterpret_cast<const char*>(trace.words.data()), trace.words.size() * kWordBytes);

  Header header{};
  kMagic.copy(header.magic, sizeof(header.magic));
  header.version = kVersion;
  header.ranks = trace.ranks;
  header.seed = trace.seed;
  header.block_tokens = trace.block_tokens;
  header.ops = trace.ops.size();
  header.words = trace.words.size();
  header.body_hash = XXH3_64bits(bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes);
  header.header_hash = HeaderHash(header);
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  return bytes;
}

Result<OpTrace> ParseOps(std::span<const std::byte> bytes) {
  KVR_TRY(const Header header, ParseHeader(bytes));
  const std::span<const std::byte> body = bytes.subspan(kHeaderBytes);
  if (XXH3_64bits(body.data(), body.size()) != header.body_hash) {
    return Corrupt(fmt::format("byte {}: the {} bytes from here on do not match their checksum",
                               kHeaderBytes, body.size()));
  }

  OpTrace trace;
  trace.seed = header.seed;
  trace.ranks = header.ranks;
  trace.block_tokens = header.block_tokens;
  trace.ops.reserve(header.ops);
  std::size_t word = 0;
  std::uint64_t time_ns = 0;
  for (std::size_t i = 0; i < header.ops; ++i) {
    const auto fail = [i](std::string_view what) {
      return Corrupt(
          fmt::format("byte {}: operation {}: {}", kHeaderBytes + i * kOpBytes, i, what));
    };
    OpRecord record{};
    std::memcpy(&record, body.data() + i * kOpBytes, kOpBytes);
    if (const std::string wrong = WrongWith(record, header.ranks); !wrong.empty())
      return fail(wrong);
    if (record.time_ns < time_ns) return fail("earlier than the one before");
    time_ns = record.time_ns;
    trace.ops.push_back({.time_ns = time_ns,
                         .parent = record.parent,
                         .word = word,
                         .rank = record.rank,
                         .blocks = record.blocks,
                         .kind = static_cast<OpKind>(record.kind),
                         .has_parent = record.flags == kHasParent});
    if (trace.ops.back().words() > header.words - word) {
      return fail(
          fmt::format("{} blocks, but only {} words are left", record.blocks, header.words - word));
    }
    word += trace.ops.back().words();
  }
  if (word != header.words)
    return Corrupt(fmt::format("byte 40: {} words, but operations have {}", header.words, word));
  trace.words.resize(header.words);
  if (header.words != 0) {
    std::memcpy(trace.words.data(), body.data() + header.ops * kOpBytes, header.words * kWordBytes);
  }
  return trace;
}

Result<void> WriteOpFile(const OpTrace& trace, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string bytes = SerializeOps(trace);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return IoError(path, "cannot be written");
  return {};
}

Result<OpTrace> ReadOpFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return IoError(path, "cannot be opened");
  struct stat status {};
  void* begin = MAP_FAILED;
  if (::fstat(fd, &status) == 0 && status.st_size > 0) {
    begin =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int error = errno;
  ::close(fd);
  if (status.st_size == 0) return Fail(ErrorCode::kCorrupt, path + ": the file is empty");
  errno = error;
  if (begin == MAP_FAILED) return IoError(path, "cannot be read");
  const Mapping mapping(begin, static_cast<std::size_t>(status.st_size));
  auto trace = ParseOps(mapping.bytes());
  if (!trace) return Fail(trace.error().code, path + ": " + trace.error().message);
  return trace;
}

}  // namespace kvr::bench
