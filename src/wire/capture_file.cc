#include "wire/capture_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace kvr::wire {
namespace {

constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRecordHeadBytes = 8;

enum class RecordKind : std::uint8_t { kSource = 1, kMessage = 2 };

constexpr std::array<std::uint32_t, 256> MakeCrcTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320u : value >> 1;
    table[i] = value;
  }
  return table;
}

template <typename Number>
void Put(std::string& out, Number value) {
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF));
}

void PutText(std::string& out, std::string_view text) {
  Put(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

// A cursor over a body; every read answers whether it was there.
class BodyReader {
 public:
  explicit BodyReader(std::span<const std::byte> body) : body_(body) {}

  template <typename Number>
  bool Read(Number& value) {
    if (body_.size() < sizeof(Number)) return false;
    std::uint64_t read = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i)
      read |= std::to_integer<std::uint64_t>(body_[i]) << (8 * i);
    value = static_cast<Number>(read);
    body_ = body_.subspan(sizeof(Number));
    return true;
  }

  bool ReadBytes(std::span<const std::byte>& bytes) {
    std::uint32_t size = 0;
    if (!Read(size) || size > body_.size()) return false;
    bytes = body_.first(size);
    body_ = body_.subspan(size);
    return true;
  }

  bool ReadText(std::string& text) {
    std::span<const std::byte> bytes;
    if (!ReadBytes(bytes)) return false;
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }

 private:
  std::span<const std::byte> body_;
};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Reason() {
  return std::generic_category().message(errno);
}

}  // namespace

std::uint32_t Crc32(std::span<const std::byte> bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = MakeCrcTable();
  std::uint32_t value = ~std::uint32_t{0};
  for (const std::byte byte : bytes)
    value = value >> 8 ^ kTable[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  return ~value;
}

Result<CaptureWriter> CaptureWriter::Create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    if (errno == EEXIST) {
      return Fail(ErrorCode::kAlreadyExists,
                  fmt::format("`{}` is there already; name another file", path));
    }
    return Fail(ErrorCode::kIo, fmt::format("cannot make `{}`: {}", path, Reason()));
  }
  FilePtr file(::fdopen(descriptor, "wb"));
  if (!file) {
    const std::string why = Reason();
    ::close(descriptor);
    return Fail(ErrorCode::kIo, fmt::format("cannot write `{}`: {}", path, why));
  }
  std::string header(kCaptureMagic);
  Put(header, kCaptureVersion);
  Put(header, std::uint32_t{0});
  CaptureWriter writer(std::move(file), path);
  if (std::fwrite(header.data(), 1, header.size(), writer.file_.get()) != header.size()) {
    return Fail(ErrorCode::kIo, fmt::format("cannot write `{}`: {}", path, Reason()));
  }
  writer.bytes_ = header.size();
  KVR_TRY_VOID(writer.Flush());
  return writer;
}

Result<std::uint16_t> CaptureWriter::AddSource(std::string_view endpoint, std::string_view topic) {
  if (sources_ >= limits_.sources_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("a capture has at most {} sources", limits_.sources_max));
  }
  body_.clear();
  Put(body_, static_cast<std::uint8_t>(RecordKind::kSource));
  Put(body_, sources_);
  PutText(body_, endpoint);
  PutText(body_, topic);
  KVR_TRY_VOID(WriteRecord());
  return sources_++;
}

Result<bool> CaptureWriter::AddMessage(std::uint16_t source, Nanos received,
                                       std::span<const std::span<const std::byte>> frames) {
  std::size_t size = 0;
  for (const auto& frame : frames)
    size += frame.size() + sizeof(std::uint32_t);
  if (frames.size() > limits_.frames_max || size + 64 > limits_.record_bytes_max) return false;
  body_.clear();
  Put(body_, static_cast<std::uint8_t>(RecordKind::kMessage));
  Put(body_, source);
  Put(body_, static_cast<std::uint64_t>(received.count()));
  Put(body_, static_cast<std::uint32_t>(frames.size()));
  for (const auto& frame : frames)
    PutText(body_, {reinterpret_cast<const char*>(frame.data()), frame.size()});
  KVR_TRY_VOID(WriteRecord());
  return true;
}

Result<void> CaptureWriter::WriteRecord() {
  std::string head;
  Put(head, static_cast<std::uint32_t>(body_.size()));
  Put(head, Crc32(Bytes(body_)));
  if (std::fwrite(head.data(), 1, head.size(), file_.get()) != head.size() ||
      std::fwrite(body_.data(), 1, body_.size(), file_.get()) != body_.size()) {
    return Fail(ErrorCode::kIo, fmt::format("cannot write `{}`: {}", path_, Reason()));
  }
  bytes_ += head.size() + body_.size();
  return {};
}

Result<void> CaptureWriter::Flush() {
  if (std::fflush(file_.get()) != 0) {
    return Fail(ErrorCode::kIo, fmt::format("cannot write `{}`: {}", path_, Reason()));
  }
  return {};
}

Result<CaptureReader> CaptureReader::Open(FilePtr file, const CaptureLimits& limits) {
  std::array<std::byte, kHeaderBytes> header{};
  const std::size_t read = std::fread(header.data(), 1, header.size(), file.get());
  const auto magic = std::as_bytes(std::span(kCaptureMagic.data(), kCaptureMagic.size()));
  if (read < header.size() || !std::equal(magic.begin(), magic.end(), header.begin())) {
    return Fail(ErrorCode::kUnprocessable,
                "the file is no capture; `kvroute capture --out FILE` makes one");
  }
  std::uint32_t version = 0;
  BodyReader(std::span(header).subspan(magic.size())).Read(version);
  if (version != kCaptureVersion) {
    return Fail(ErrorCode::kUnprocessable,
                fmt::format("the capture is of version {}, this program reads version {}", version,
                            kCaptureVersion));
  }
  CaptureReader reader(std::move(file), limits);
  reader.next_ = kHeaderBytes;
  return reader;
}

bool CaptureReader::Next(CaptureMessage& message) {
  while (ReadRecord()) {
    std::uint8_t kind = 0;
    if (!BodyReader(body_).Read(kind)) return Damaged("is empty");
    if (kind == static_cast<std::uint8_t>(RecordKind::kSource)) {
      if (!TakeSource()) return Damaged("is no source, or names one out of turn");
    } else if (kind == static_cast<std::uint8_t>(RecordKind::kMessage)) {
      if (!TakeMessage(message)) return Damaged("is no message of a source that was named");
      return true;
    }
  }
  return false;
}

bool CaptureReader::ReadRecord() {
  if (!damage_.empty()) return false;
  offset_ = next_;
  std::array<std::byte, kRecordHeadBytes> head{};
  const std::size_t read = std::fread(head.data(), 1, head.size(), file_.get());
  if (read == 0) return false;
  if (read < head.size()) return Torn("ends inside its head");
  std::uint32_t size = 0;
  std::uint32_t checksum = 0;
  BodyReader in(head);
  in.Read(size);
  in.Read(checksum);
  if (size > limits_.record_bytes_max) return Damaged("is longer than a record can be");
  // Read in steps, so that a wrong length costs no more memory than there are bytes.
  constexpr std::size_t kStep = std::size_t{1} << 20;
  body_.clear();
  while (body_.size() < size) {
    const std::size_t have = body_.size();
    const std::size_t want = std::min(kStep, size - have);
    body_.resize(have + want);
    if (std::fread(body_.data() + have, 1, want, file_.get()) < want) {
      return Torn("is shorter than it says");
    }
  }
  next_ = offset_ + kRecordHeadBytes + size;
  if (Crc32(body_) != checksum) return Damaged("has another checksum than it says");
  return true;
}

bool CaptureReader::TakeSource() {
  BodyReader in(body_);
  std::uint8_t kind = 0;
  std::uint16_t number = 0;
  CaptureSource source;
  if (!in.Read(kind) || !in.Read(number) || !in.ReadText(source.endpoint) ||
      !in.ReadText(source.topic)) {
    return false;
  }
  if (number != sources_.size() || sources_.size() >= limits_.sources_max) return false;
  sources_.push_back(std::move(source));
  return true;
}

bool CaptureReader::TakeMessage(CaptureMessage& message) {
  BodyReader in(body_);
  std::uint8_t kind = 0;
  std::uint64_t received = 0;
  std::uint32_t count = 0;
  if (!in.Read(kind) || !in.Read(message.source) || !in.Read(received) || !in.Read(count)) {
    return false;
  }
  if (message.source >= sources_.size() || count > limits_.frames_max ||
      received > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return false;
  }
  message.received = Nanos{static_cast<std::int64_t>(received)};
  message.frames.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!in.ReadBytes(message.frames.emplace_back())) return false;
  }
  return true;
}

bool CaptureReader::Damaged(std::string_view what) {
  damage_ = fmt::format("the record at byte {} {}", offset_, what);
  return false;
}

bool CaptureReader::Torn(std::string_view what) {
  torn_ = true;
  return Damaged(what);
}

}  // namespace kvr::wire
