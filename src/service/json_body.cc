#include "service/json_body.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "service/json_numbers.h"
#include "service/number_list.h"

namespace kvr::service {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kDepthMax = RequestBody::kDepthMax;

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

}  // namespace

struct JsonBody::Document {
  std::optional<NumberList> list;
  std::string rest;  // the text without the list
  dom::parser parser;
  dom::object root;

  // The list, if it is the field's; the parser saw an empty one there.
  [[nodiscard]] NumberList* ListOf(std::string_view field) {
    return list && list->field == field ? &*list : nullptr;
  }

  [[nodiscard]] dom::array ArrayAt(std::string_view field) const {
    return root.at_key(field).get_array().value_unsafe();
  }
};

JsonBody::JsonBody(std::unique_ptr<Document> document) : document_(std::move(document)) {}
JsonBody::~JsonBody() = default;

Result<std::unique_ptr<RequestBody>> JsonBody::Parse(std::string_view text) {
  auto document = std::make_unique<Document>();
  document->list = CutNumberList(text, document->rest);
  if (document->list) text = document->rest;
  if (document->parser.allocate(std::max<std::size_t>(text.size(), 64), kDepthMax) !=
      simdjson::SUCCESS) {
    return Fail(ErrorCode::kOverloaded, "no memory to parse the body");
  }
  KVR_TRY(document->root, ParseObject(document->parser, text));
  std::unique_ptr<JsonBody> body(new JsonBody(std::move(document)));
  for (const auto field : body->document_->root)
    KVR_TRY_VOID(body->AddField(field.key));
  return std::unique_ptr<RequestBody>(std::move(body));
}

RequestBody::Value JsonBody::Look(std::string_view field) {
  dom::element found;
  if (document_->root.at_key(field).get(found) != simdjson::SUCCESS) return {};
  Value value;
  switch (found.type()) {
    case dom::element_type::ARRAY:
      value.kind = Value::Kind::kArray;
      break;
    case dom::element_type::OBJECT:
      value.kind = Value::Kind::kObject;
      break;
    case dom::element_type::INT64: {
      const std::int64_t number = found.get_int64().value_unsafe();
      value.kind = number < 0 ? Value::Kind::kNegative : Value::Kind::kUnsigned;
      value.number = static_cast<std::uint64_t>(number);
      break;
    }
    case dom::element_type::UINT64:
      value.kind = Value::Kind::kUnsigned;
      value.number = found.get_uint64().value_unsafe();
      break;
    case dom::element_type::DOUBLE:
      value.kind = Value::Kind::kFraction;
      break;
    case dom::element_type::STRING:
      value.kind = Value::Kind::kString;
      value.text = found.get_string().value_unsafe();
      break;
    case dom::element_type::BOOL:
      value.kind = Value::Kind::kBool;
      value.number = found.get_bool().value_unsafe() ? 1 : 0;
      break;
    case dom::element_type::NULL_VALUE:
      break;
  }
  return value;
}

RequestBody::Fault JsonBody::ReadTokens(std::string_view field, std::vector<TokenId>& out) {
  if (NumberList* const list = document_->ListOf(field)) {
    out.swap(list->numbers);
    return {};
  }
  const dom::array list = document_->ArrayAt(field);
  out.reserve(list.size());
  for (const dom::element element : list) {
    std::uint64_t token = 0;
    if (element.get(token) != simdjson::SUCCESS || token > std::numeric_limits<TokenId>::max()) {
      return out.size();
    }
    out.push_back(static_cast<TokenId>(token));
  }
  return {};
}

RequestBody::Fault JsonBody::ReadHashes(std::string_view field, std::vector<BlockHash>& out) {
  if (const NumberList* const list = document_->ListOf(field)) {
    for (const std::uint32_t number : list->numbers)
      out.push_back(BlockHash{number});
    return {};
  }
  const dom::array list = document_->ArrayAt(field);
  out.reserve(list.size());
  for (const dom::element element : list) {
    std::uint64_t hash = 0;
    std::int64_t signed_hash = 0;
    if (element.get(signed_hash) == simdjson::SUCCESS) {
      hash = static_cast<std::uint64_t>(signed_hash);
    } else if (element.get(hash) != simdjson::SUCCESS) {
      return out.size();
    }
    out.push_back(static_cast<BlockHash>(hash));
  }
  return {};
}

bool JsonBody::ReadMmInfos(std::string_view field, std::vector<hashing::BlockMm>& out) {
  if (document_->ListOf(field) != nullptr) return false;  // numbers are no infos
  std::size_t block = 0;
  for (const dom::element info : document_->ArrayAt(field)) {
    const std::size_t index = block++;
    if (info.is_null()) continue;
    dom::array objects;
    if (info.at_key("mm_objects").get(objects) != simdjson::SUCCESS) return false;
    for (const dom::element object : objects) {
      std::uint64_t hash = 0;
      if (object.at_key("mm_hash").get(hash) != simdjson::SUCCESS) return false;
      out.push_back({index, hash});
    }
  }
  return true;
}

}  // namespace kvr::service
