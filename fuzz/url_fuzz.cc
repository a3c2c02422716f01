// Texts of URLs: what is taken apart is put together again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "net/http.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto url = kvr::net::ParseUrl(text)) {
    KVR_CHECK(!url->host.empty());
    KVR_CHECK(url->port != 0);
    KVR_CHECK(url->host.find('\0') == std::string::npos);
  } else {
    KVR_CHECK(!url.error().message.empty());
  }
  if (const auto decoded = kvr::net::PercentDecode(text)) KVR_CHECK(decoded->size() <= text.size());
  const std::size_t cut = text.find('\n');
  if (cut == std::string_view::npos) return 0;
  const std::string_view name = text.substr(0, cut);
  if (const auto value = kvr::net::QueryParameter(text.substr(cut + 1), name)) {
    KVR_CHECK(value->size() <= text.size());
  }
  return 0;
}
