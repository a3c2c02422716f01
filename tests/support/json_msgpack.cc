#include "support/json_msgpack.h"

#include <optional>

#include <simdjson.h>

#include "base/check.h"
#include "base/hex.h"
#include "wire/msgpack_writer.h"

namespace kvr::test {
namespace {

namespace dom = simdjson::dom;

// The one field of {"$bytes": ...} or {"$raw": ...}.
std::optional<std::string> Escaped(const dom::object& object, std::string_view key) {
  std::string_view hex;
  if (object.size() != 1 || object[key].get(hex) != simdjson::SUCCESS) return std::nullopt;
  const auto bytes = FromHex(hex);
  KVR_CHECK(bytes.has_value());
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

void Write(const dom::element& value, wire::MsgpackWriter& out);

void WriteObject(const dom::object& object, wire::MsgpackWriter& out) {
  if (const auto bytes = Escaped(object, "$bytes")) return out.Bin(*bytes);
  if (const auto raw = Escaped(object, "$raw")) return out.Raw(*raw);
  out.Map(object.size());
  for (const auto field : object) {
    out.Text(field.key);
    Write(field.value, out);
  }
}

void Write(const dom::element& value, wire::MsgpackWriter& out) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      out.Array(dom::array(value).size());
      for (const dom::element item : dom::array(value))
        Write(item, out);
      return;
    case dom::element_type::OBJECT:
      return WriteObject(dom::object(value), out);
    case dom::element_type::INT64:
      return out.Int(std::int64_t(value));
    case dom::element_type::UINT64:
      return out.Uint(std::uint64_t(value));
    case dom::element_type::DOUBLE:
      return out.Double(double(value));
    case dom::element_type::STRING:
      return out.Text(std::string_view(value));
    case dom::element_type::BOOL:
      return out.Bool(bool(value));
    case dom::element_type::NULL_VALUE:
      return out.Nil();
  }
}

}  // namespace

std::vector<std::byte> MsgpackFromJson(std::string_view json) {
  dom::parser parser;
  dom::element root;
  KVR_CHECK(parser.parse(json.data(), json.size()).get(root) == simdjson::SUCCESS);
  std::string bytes;
  wire::MsgpackWriter writer(bytes);
  Write(root, writer);
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

}  // namespace kvr::test
