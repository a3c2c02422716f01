#include "wire/json_to_msgpack.h"

#include <algorithm>

#include <simdjson.h>

#include "wire/json_room.h"
#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kDepthMax = 64;

bool Write(const dom::element& value, std::size_t depth, MsgpackWriter& out);

bool WriteArray(const dom::array& items, std::size_t depth, MsgpackWriter& out) {
  // An array's own count saturates at 2^24 - 1.
  std::size_t count = 0;
  for ([[maybe_unused]] const dom::element item : items)
    ++count;
  out.Array(count);
  for (const dom::element item : items) {
    if (!Write(item, depth + 1, out)) return false;
  }
  return true;
}

bool WriteObject(const dom::object& fields, std::size_t depth, MsgpackWriter& out) {
  std::size_t count = 0;
  for ([[maybe_unused]] const dom::key_value_pair field : fields)
    ++count;
  out.Map(count);
  for (const dom::key_value_pair field : fields) {
    out.Text(field.key);
    if (!Write(field.value, depth + 1, out)) return false;
  }
  return true;
}

bool Write(const dom::element& value, std::size_t depth, MsgpackWriter& out) {
  if (depth > kDepthMax) return false;
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return WriteArray(value.get_array().value_unsafe(), depth, out);
    case dom::element_type::OBJECT:
      return WriteObject(value.get_object().value_unsafe(), depth, out);
    case dom::element_type::INT64:
      out.Int(value.get_int64().value_unsafe());
      return true;
    case dom::element_type::UINT64:
      out.Uint(value.get_uint64().value_unsafe());
      return true;
    case dom::element_type::DOUBLE:
      out.Double(value.get_double().value_unsafe());
      return true;
    case dom::element_type::STRING:
      out.Text(value.get_string().value_unsafe());
      return true;
    case dom::element_type::BOOL:
      out.Bool(value.get_bool().value_unsafe());
      return true;
    default:
      out.Nil();
      return true;
  }
}

}  // namespace

class JsonToMsgpack::Impl {
 public:
  dom::parser parser;
  JsonRoom room;
  ReusedLists looks;
};

JsonToMsgpack::JsonToMsgpack() : impl_(std::make_unique<Impl>()) {}
JsonToMsgpack::~JsonToMsgpack() = default;
JsonToMsgpack::JsonToMsgpack(JsonToMsgpack&&) noexcept = default;
JsonToMsgpack& JsonToMsgpack::operator=(JsonToMsgpack&&) noexcept = default;

Result<void, DecodeError> JsonToMsgpack::Convert(std::span<const std::byte> text,
                                                 const DecodeLimits& limits, std::string& out) {
  out.clear();
  impl_->room.Look(impl_->parser);
  if (impl_->looks.IsDue() && out.capacity() > ReusedLists::kKeptBytesMax) std::string().swap(out);
  const auto refuse = [this](DecodeErrc code) {
    JsonRoom::GiveBack(impl_->parser);
    return tl::make_unexpected(DecodeError{code, 0});
  };
  if (text.size() > std::min(limits.payload_bytes_max, limits.json_bytes_max)) {
    return refuse(DecodeErrc::kOverLimit);
  }
  dom::element root;
  const auto parsed =
      impl_->parser.parse(reinterpret_cast<const char*>(text.data()), text.size()).get(root);
  if (parsed != simdjson::SUCCESS) return refuse(DecodeErrc::kBadJson);
  MsgpackWriter writer(out);
  if (!Write(root, 0, writer)) return refuse(DecodeErrc::kOverLimit);
  return {};
}

}  // namespace kvr::wire
