// The short answers {"status":"ok"} and the warnings beside them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http.h"
#include "service/indexer/bodies.h"

namespace kvr::service {

// What a caller should know although the request was served. With `strict` an unknown field is
// kUnprocessable.
Result<std::vector<std::string>> BodyWarnings(const BodyNotes& notes, bool strict);

// Puts "warnings" into a JSON object, if there are any.
void AppendWarnings(std::string& object, const std::vector<std::string>& warnings);

// {"status":word} with the warnings.
net::HttpResponse StatusAnswer(int status, std::string_view word,
                               const std::vector<std::string>& warnings);

}  // namespace kvr::service
