// Capture files. Byte 0 chooses: the rest is the file, or it is cut into bodies (a length byte
// before each) that are given right lengths and checksums, which no mutation would find.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "wire/capture_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace wire = kvr::wire;

void AppendU32(std::string& out, std::uint32_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(value >> shift));
}

std::string WithRecords(std::string_view bodies) {
  std::string file(wire::kCaptureMagic);
  AppendU32(file, wire::kCaptureVersion);
  AppendU32(file, 0);
  while (!bodies.empty()) {
    const auto length = static_cast<unsigned char>(bodies.front());
    const std::string_view body = bodies.substr(1, length);
    AppendU32(file, static_cast<std::uint32_t>(body.size()));
    AppendU32(file, wire::Crc32(std::as_bytes(std::span(body))));
    file += body;
    bodies.remove_prefix(1 + body.size());
  }
  return file;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string file = data[0] % 2 == 0 ? std::string(rest) : WithRecords(rest);
  if (file.empty()) return 0;
  wire::FilePtr in(fmemopen(file.data(), file.size(), "rb"));
  KVR_CHECK(in != nullptr);
  const wire::CaptureLimits limits{.record_bytes_max = 1024, .frames_max = 8, .sources_max = 4};
  auto reader = wire::CaptureReader::Open(std::move(in), limits);
  if (!reader) {
    KVR_CHECK(!reader.error().message.empty());
    return 0;
  }
  wire::CaptureMessage message;
  while (reader->Next(message)) {
    KVR_CHECK(message.source < reader->sources().size());
    KVR_CHECK(message.frames.size() <= limits.frames_max);
    std::size_t bytes = 0;
    for (const auto frame : message.frames)
      bytes += frame.size();
    KVR_CHECK(bytes <= limits.record_bytes_max);
  }
  KVR_CHECK(reader->sources().size() <= limits.sources_max);
  KVR_CHECK(!reader->torn() || !reader->damage().empty());
  return 0;
}
