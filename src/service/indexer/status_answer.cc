#include "service/indexer/status_answer.h"

#include <fmt/format.h>

#include "base/json_writer.h"

namespace kvr::service {

Result<std::vector<std::string>> BodyWarnings(const BodyNotes& notes, bool strict) {
  std::vector<std::string> warnings;
  for (const std::string& field : notes.unknown_fields) {
    warnings.push_back(fmt::format("unknown field `{}` is ignored", field));
  }
  if (strict && !warnings.empty()) {
    return Fail(ErrorCode::kUnprocessable, warnings.front() + "; remove it");
  }
  if (notes.tenant_id) warnings.emplace_back("`tenant_id` has no effect; use `routing_group`");
  return warnings;
}

void AppendWarnings(std::string& object, const std::vector<std::string>& warnings) {
  if (warnings.empty()) return;
  object.pop_back();
  object += ",\"warnings\":";
  JsonWriter json(object);
  json.BeginArray();
  for (const std::string& warning : warnings)
    json.Value(warning);
  json.EndArray();
  object += '}';
}

net::HttpResponse StatusAnswer(int status, std::string_view word,
                               const std::vector<std::string>& warnings) {
  std::string body = fmt::format("{{\"status\":\"{}\"}}", word);
  AppendWarnings(body, warnings);
  return net::JsonResponse(status, std::move(body));
}

}  // namespace kvr::service
