#include "service/json_body.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "service/json_numbers.h"

namespace kvr::service {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kDepthMax = 64;

tl::unexpected<Error> Unprocessable(std::string message) {
  return Fail(ErrorCode::kUnprocessable, std::move(message));
}

Error FromParser(simdjson::error_code code) {
  if (code == simdjson::DEPTH_ERROR) {
    return {ErrorCode::kBadJson, fmt::format("the body nests deeper than {} levels", kDepthMax)};
  }
  if (code == simdjson::EMPTY)
    return {ErrorCode::kBadJson, "the body is empty; send a JSON object"};
  return {ErrorCode::kBadJson,
          fmt::format("the body is no valid JSON: {}", simdjson::error_message(code))};
}

// Parses with the parser's room. Numbers beyond 64 bits are no fault of the syntax, but the parser
// cannot hold them.
Result<dom::object> ParseObject(dom::parser& parser, std::string_view text) {
  dom::element root;
  auto code = parser.parse(text.data(), text.size()).get(root);
  if (code == simdjson::NUMBER_ERROR) {
    const NumberFaults faults = FindNumberFaults(text);
    if (faults.malformed) {
      return Fail(ErrorCode::kBadJson, "the body is no valid JSON: a number in it is malformed");
    }
    code = parser.parse(faults.without_far).get(root);
    if (code == simdjson::SUCCESS && root.is_object()) {
      return Unprocessable(fmt::format("field {} holds a number beyond 64 bits", faults.far_where));
    }
  }
  if (code != simdjson::SUCCESS) return tl::make_unexpected(FromParser(code));
  if (!root.is_object()) return Fail(ErrorCode::kBadJson, "the body must be a JSON object");
  return root.get_object().value_unsafe();
}

std::string TypeName(const dom::element& value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::INT64:
    case dom::element_type::UINT64:
      return "an integer";
    case dom::element_type::DOUBLE:
      return "a fraction";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      break;
  }
  return "null";
}

}  // namespace

struct JsonBody::Document {
  dom::parser parser;
  dom::object root;
  std::vector<std::string_view> fields;  // as in the body
  std::vector<std::string_view> used;

  // The value, unless absent or null.
  std::optional<dom::element> Find(std::string_view field) {
    used.push_back(field);
    dom::element value;
    if (root.at_key(field).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }

  Result<dom::element> Require(std::string_view field) {
    if (auto value = Find(field)) return *value;
    return Unprocessable(fmt::format("missing field `{}`", field));
  }
};

JsonBody::JsonBody(std::unique_ptr<Document> document) : document_(std::move(document)) {}
JsonBody::JsonBody(JsonBody&&) noexcept = default;
JsonBody& JsonBody::operator=(JsonBody&&) noexcept = default;
JsonBody::~JsonBody() = default;

Result<JsonBody> JsonBody::Parse(std::string_view text) {
  auto document = std::make_unique<Document>();
  if (document->parser.allocate(std::max<std::size_t>(text.size(), 64), kDepthMax) !=
      simdjson::SUCCESS) {
    return Fail(ErrorCode::kOverloaded, "no memory to parse the body");
  }
  KVR_TRY(document->root, ParseObject(document->parser, text));
  std::unordered_set<std::string_view> seen;
  for (const auto field : document->root) {
    if (!seen.insert(field.key).second) {
      return Unprocessable(fmt::format("duplicate field `{}`", field.key));
    }
    document->fields.push_back(field.key);
  }
  return JsonBody(std::move(document));
}

bool JsonBody::Has(std::string_view field) {
  return document_->Find(field).has_value();
}

void JsonBody::Ignore(std::string_view field) {
  document_->used.push_back(field);
}

Result<std::optional<std::uint64_t>> JsonBody::OptionalUnsigned(std::string_view field,
                                                                std::uint64_t max) {
  const auto value = document_->Find(field);
  if (!value) return std::optional<std::uint64_t>();
  std::uint64_t number = 0;
  if (value->get(number) != simdjson::SUCCESS || number > max) {
    return Unprocessable(
        fmt::format("field `{}` must be an integer of 0 to {}, not {}", field, max,
                    value->is_number() ? simdjson::minify(*value) : TypeName(*value)));
  }
  return std::optional<std::uint64_t>(number);
}

Result<std::uint64_t> JsonBody::Unsigned(std::string_view field, std::uint64_t max) {
  KVR_TRY(const auto value, OptionalUnsigned(field, max));
  if (!value) return Unprocessable(fmt::format("missing field `{}`", field));
  return *value;
}

Result<std::optional<std::string_view>> JsonBody::OptionalString(std::string_view field) {
  const auto value = document_->Find(field);
  if (!value) return std::optional<std::string_view>();
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) {
    return Unprocessable(
        fmt::format("field `{}` must be a string, not {}", field, TypeName(*value)));
  }
  return std::optional<std::string_view>(text);
}

Result<std::string_view> JsonBody::String(std::string_view field) {
  KVR_TRY(const auto value, OptionalString(field));
  if (!value) return Unprocessable(fmt::format("missing field `{}`", field));
  return *value;
}

Result<bool> JsonBody::Flag(std::string_view field, bool fallback) {
  const auto value = document_->Find(field);
  if (!value) return fallback;
  bool flag = false;
  if (value->get(flag) != simdjson::SUCCESS) {
    return Unprocessable(
        fmt::format("field `{}` must be true or false, not {}", field, TypeName(*value)));
  }
  return flag;
}

Result<void> JsonBody::Tokens(std::string_view field, std::vector<TokenId>& out) {
  out.clear();
  KVR_TRY(const dom::element value, document_->Require(field));
  dom::array list;
  if (value.get(list) != simdjson::SUCCESS) {
    return Unprocessable(
        fmt::format("field `{}` must be an array of token ids, not {}", field, TypeName(value)));
  }
  out.reserve(list.size());
  for (const dom::element element : list) {
    std::uint64_t token = 0;
    if (element.get(token) != simdjson::SUCCESS || token > std::numeric_limits<TokenId>::max()) {
      return Unprocessable(
          fmt::format("`{}`[{}] must be an integer of 0 to 4294967295", field, out.size()));
    }
    out.push_back(static_cast<TokenId>(token));
  }
  return {};
}

Result<void> JsonBody::Hashes(std::string_view field, std::vector<BlockHash>& out) {
  out.clear();
  KVR_TRY(const dom::element value, document_->Require(field));
  dom::array list;
  if (value.get(list) != simdjson::SUCCESS) {
    return Unprocessable(
        fmt::format("field `{}` must be an array of hashes, not {}", field, TypeName(value)));
  }
  out.reserve(list.size());
  for (const dom::element element : list) {
    std::uint64_t hash = 0;
    std::int64_t signed_hash = 0;
    if (element.get(signed_hash) == simdjson::SUCCESS) {
      hash = static_cast<std::uint64_t>(signed_hash);
    } else if (element.get(hash) != simdjson::SUCCESS) {
      return Unprocessable(
          fmt::format("`{}`[{}] must be a 64-bit integer, signed or unsigned", field, out.size()));
    }
    out.push_back(static_cast<BlockHash>(hash));
  }
  return {};
}

Result<void> JsonBody::BlockMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) {
  out.clear();
  const auto value = document_->Find(field);
  if (!value) return {};
  const auto wrong = [&] {
    return Unprocessable(
        fmt::format("field `{}` must be an array with null or "
                    "{{\"mm_objects\":[{{\"mm_hash\":u64}}]}} per block",
                    field));
  };
  dom::array blocks;
  if (value->get(blocks) != simdjson::SUCCESS) return wrong();
  std::size_t block = 0;
  for (const dom::element info : blocks) {
    const std::size_t index = block++;
    if (info.is_null()) continue;
    dom::array objects;
    if (info.at_key("mm_objects").get(objects) != simdjson::SUCCESS) return wrong();
    for (const dom::element object : objects) {
      std::uint64_t hash = 0;
      if (object.at_key("mm_hash").get(hash) != simdjson::SUCCESS) return wrong();
      out.push_back({index, hash});
    }
  }
  return {};
}

std::vector<std::string> JsonBody::UnknownFields() const {
  std::vector<std::string> unknown;
  for (const std::string_view field : document_->fields) {
    const auto& used = document_->used;
    if (std::find(used.begin(), used.end(), field) == used.end()) unknown.emplace_back(field);
  }
  return unknown;
}

}  // namespace kvr::service
