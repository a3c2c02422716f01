#include "service/request_body.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "service/json_body.h"
#include "service/msgpack_body.h"

namespace kvr::service {
namespace {

using Kind = RequestBody::Value::Kind;

tl::unexpected<Error> Unprocessable(std::string message) {
  return Fail(ErrorCode::kUnprocessable, std::move(message));
}

tl::unexpected<Error> Missing(std::string_view field) {
  return Unprocessable(fmt::format("missing field `{}`", field));
}

std::string Shown(const RequestBody::Value& value) {
  switch (value.kind) {
    case Kind::kUnsigned:
      return std::to_string(value.number);
    case Kind::kNegative:
      return std::to_string(static_cast<std::int64_t>(value.number));
    default:
      return std::string(value.TypeName());
  }
}

}  // namespace

std::string_view RequestBody::Value::TypeName() const {
  switch (kind) {
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
    case Kind::kUnsigned:
    case Kind::kNegative:
      return "an integer";
    case Kind::kFraction:
      return "a fraction";
    case Kind::kString:
      return "a string";
    case Kind::kBool:
      return "a boolean";
    case Kind::kBytes:
      return "bytes";
    case Kind::kNull:
      break;
  }
  return "null";
}

Result<std::unique_ptr<RequestBody>> RequestBody::Parse(std::string_view bytes, BodyForm form) {
  if (form == BodyForm::kMsgpack) return MsgpackBody::Parse(bytes);
  return JsonBody::Parse(bytes);
}

Result<void> RequestBody::AddField(std::string_view name) {
  if (!distinct_.insert(name).second) {
    return Unprocessable(fmt::format("duplicate field `{}`", name));
  }
  fields_.push_back(name);
  return {};
}

RequestBody::Value RequestBody::Find(std::string_view field) {
  used_.push_back(field);
  return Look(field);
}

bool RequestBody::Has(std::string_view field) {
  return Find(field).kind != Value::Kind::kNull;
}

void RequestBody::Ignore(std::string_view field) {
  used_.push_back(field);
}

Result<std::optional<std::uint64_t>> RequestBody::OptionalUnsigned(std::string_view field,
                                                                   std::uint64_t max) {
  const Value value = Find(field);
  if (value.kind == Kind::kNull) return std::optional<std::uint64_t>();
  if (value.kind != Kind::kUnsigned || value.number > max) {
    return Unprocessable(
        fmt::format("field `{}` must be an integer of 0 to {}, not {}", field, max, Shown(value)));
  }
  return std::optional<std::uint64_t>(value.number);
}

Result<std::uint64_t> RequestBody::Unsigned(std::string_view field, std::uint64_t max) {
  KVR_TRY(const auto value, OptionalUnsigned(field, max));
  if (!value) return Missing(field);
  return *value;
}

Result<std::optional<std::string_view>> RequestBody::OptionalString(std::string_view field) {
  const Value value = Find(field);
  if (value.kind == Kind::kNull) return std::optional<std::string_view>();
  if (value.kind != Kind::kString) {
    return Unprocessable(
        fmt::format("field `{}` must be a string, not {}", field, value.TypeName()));
  }
  return std::optional<std::string_view>(value.text);
}

Result<std::string_view> RequestBody::String(std::string_view field) {
  KVR_TRY(const auto value, OptionalString(field));
  if (!value) return Missing(field);
  return *value;
}

Result<bool> RequestBody::Flag(std::string_view field, bool fallback) {
  const Value value = Find(field);
  if (value.kind == Kind::kNull) return fallback;
  if (value.kind != Kind::kBool) {
    return Unprocessable(
        fmt::format("field `{}` must be true or false, not {}", field, value.TypeName()));
  }
  return value.number != 0;
}

Result<void> RequestBody::Tokens(std::string_view field, std::vector<TokenId>& out) {
  out.clear();
  const Value value = Find(field);
  if (value.kind == Kind::kNull) return Missing(field);
  if (value.kind != Kind::kArray) {
    return Unprocessable(
        fmt::format("field `{}` must be an array of token ids, not {}", field, value.TypeName()));
  }
  if (const Fault at = ReadTokens(field, out)) {
    return Unprocessable(fmt::format("`{}`[{}] must be an integer of 0 to 4294967295", field, *at));
  }
  return {};
}

Result<void> RequestBody::Hashes(std::string_view field, std::vector<BlockHash>& out) {
  out.clear();
  const Value value = Find(field);
  if (value.kind == Kind::kNull) return Missing(field);
  if (value.kind != Kind::kArray) {
    return Unprocessable(
        fmt::format("field `{}` must be an array of hashes, not {}", field, value.TypeName()));
  }
  if (const Fault at = ReadHashes(field, out)) {
    return Unprocessable(
        fmt::format("`{}`[{}] must be a 64-bit integer, signed or unsigned", field, *at));
  }
  return {};
}

Result<void> RequestBody::BlockMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) {
  out.clear();
  const Value value = Find(field);
  if (value.kind == Kind::kNull) return {};
  if (value.kind == Kind::kArray && ReadMmInfos(field, out)) return {};
  return Unprocessable(
      fmt::format("field `{}` must be an array with null or "
                  "{{\"mm_objects\":[{{\"mm_hash\":u64}}]}} per block",
                  field));
}

std::vector<std::string> RequestBody::UnknownFields() const {
  std::vector<std::string> unknown;
  for (const std::string_view field : fields_) {
    if (std::find(used_.begin(), used_.end(), field) == used_.end()) unknown.emplace_back(field);
  }
  return unknown;
}

}  // namespace kvr::service
